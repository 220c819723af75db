"""Finding a backend by name."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import Any, cast

from repobuild_serve.backends.interface import Backend
from repobuild_serve.backends.model_backend import ModelBackend, Threaded
from repobuild_serve.errors import LoadError
from repobuild_serve.once import made_once

_BUILT_IN = {
    "onnxruntime": "repobuild_serve.backends.onnxruntime:OnnxRuntimeBackend",
    "python": "repobuild_serve.backends.python.backend:PythonBackend",
    "pytorch": "repobuild_serve.backends.pytorch:PyTorchBackend",
}
_GROUP = "repobuild_serve.backends"


def backend_names() -> frozenset[str]:
    """The names of the backends that are there."""
    return frozenset(_BUILT_IN) | entry_points(group=_GROUP).names


@made_once
def backend_named(name: str) -> ModelBackend:
    """The backend called ``name``; the same one for every thread, as it may keep settings of the process.

    Raises:
        LoadError: No backend has that name.
    """
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        return _model_backend(getattr(importlib.import_module(module), attribute)())
    for entry in entry_points(group=_GROUP, name=name):
        return _model_backend(entry.load()())
    raise LoadError(
        f"unable to find backend library for backend '{name}', try specifying runtime on the model "
        "configuration."
    )


def _model_backend(found: Any) -> ModelBackend:
    return cast("ModelBackend", found) if hasattr(found, "worker") else Threaded(cast("Backend", found))
