"""What the child process sees of its parent's environment: an allow-list without credentials or proxies."""

from __future__ import annotations

import os
from pathlib import Path

KEPT_ENVIRONMENT = (
    "LANG", "LC_ALL", "SYSTEMROOT", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE",
)  # fmt: skip
KEPT_PATHS = ("VIRTUAL_ENV",)
KEPT_PATH_LISTS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")


def child_environment(folder: Path) -> dict[str, str]:
    """What the child sees of the environment.

    Args:
        folder: The child's own folder: working directory, so that paths become absolute, home and place of
            temporary files.
    """
    kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
    for name in KEPT_PATHS:
        if os.environ.get(name):
            kept[name] = str(Path(os.environ[name]).absolute())
    for name in KEPT_PATH_LISTS:
        if os.environ.get(name):
            kept[name] = os.pathsep.join(
                str(Path(entry).absolute()) for entry in os.environ[name].split(os.pathsep)
            )
    return kept | {
        "HOME": str(folder.absolute()),
        "TMPDIR": str(folder.absolute()),
        "JOBLIB_TEMP_FOLDER": str(folder.absolute()),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
