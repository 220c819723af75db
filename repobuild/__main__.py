"""``python -m repobuild``, and the start of the ``repobuild`` command."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; a Ctrl-C while its modules are still being imported is told like any other.

    Returns:
        The exit status of :func:`repobuild.cli.main`.
    """
    try:
        from repobuild.streams import settle_streams

        settle_streams()
        from repobuild.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; nothing was begun\n")
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
