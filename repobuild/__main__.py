"""``python -m repobuild``."""

from __future__ import annotations

import sys

from repobuild.cli import main

if __name__ == "__main__":
    sys.exit(main())
