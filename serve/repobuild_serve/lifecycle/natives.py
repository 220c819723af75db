"""Importing what loading threads need before there are such threads."""

from __future__ import annotations

import contextlib
import importlib

_NATIVES = (
    "numpy",
    "google.protobuf.text_format",
    "google.protobuf.message_factory",
    "onnxruntime",
    "rapidjson",
)


def import_natives() -> None:
    """Import what the loading threads need, before there are such threads.

    Two threads that import NumPy or ONNX Runtime for the first time at once can each meet a half made
    module ("partially initialized"). What is not installed is left out here; whoever needs it says so.
    """
    for name in _NATIVES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
