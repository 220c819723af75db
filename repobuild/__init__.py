"""repobuild turns trained models into proven NVIDIA Triton model repositories."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from repobuild.api import convert as convert
    from repobuild.errors import RepobuildError as RepobuildError
    from repobuild.report import Report as Report

# ONNX Runtime from 1.29 on reports names and hashes of the models that it loads to its maker, unless told.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__version__ = "0.1.0"
__all__ = ["RepobuildError", "Report", "__version__", "convert"]

_LAZY = {"convert": "repobuild.api", "RepobuildError": "repobuild.errors", "Report": "repobuild.report"}


def __getattr__(name: str) -> Any:
    """Import what Python callers use when they use it, so that the command line stays light."""
    import importlib

    if name not in _LAZY:
        raise AttributeError(f"module 'repobuild' has no attribute '{name}'")
    return getattr(importlib.import_module(_LAZY[name]), name)
