"""``python -m repobuild_serve REPOSITORY``."""

from __future__ import annotations

import sys

from repobuild_serve.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
