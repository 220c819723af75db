"""``python -m tests.conformance``: take all cases through builder and server, and write the page."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.conformance.cases import collect
from tests.conformance.page import PAGE, render
from tests.conformance.run import run


def main() -> int:
    """Write the page; status 1 if a case is wrong."""
    cases = collect()
    with tempfile.TemporaryDirectory() as folder:
        results = run(cases, Path(folder))
    for name, why in sorted(results.wrong.items()):
        print(f"{name}: {why[:600]}", file=sys.stderr)
    if results.wrong:
        return 1
    PAGE.write_text(render(cases, results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
