"""Finding a backend by name."""

from __future__ import annotations

import functools
import importlib
import threading
from importlib.metadata import entry_points
from typing import Any, cast

from repobuild_serve.backends.interface import Backend
from repobuild_serve.backends.model_backend import ModelBackend, Threaded
from repobuild_serve.errors import LoadError

_BUILT_IN = {
    "onnxruntime": "repobuild_serve.backends.onnxruntime:OnnxRuntimeBackend",
    "python": "repobuild_serve.backends.python.backend:PythonBackend",
    "pytorch": "repobuild_serve.backends.pytorch:PyTorchBackend",
}
_GROUP = "repobuild_serve.backends"


def backend_names() -> frozenset[str]:
    """The names of the backends that are there."""
    return frozenset(_BUILT_IN) | entry_points(group=_GROUP).names


_MAKING = threading.RLock()


def backend_named(name: str) -> ModelBackend:
    """The backend called ``name``; the same one for every thread.

    Raises:
        LoadError: No backend has that name.
    """
    # Two threads that fill the cache at once would each get a backend of their own, and what one knows of the
    # process (its settings, shared modules) the other would not.
    with _MAKING:
        return _make_backend(name)


@functools.cache
def _make_backend(name: str) -> ModelBackend:
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
