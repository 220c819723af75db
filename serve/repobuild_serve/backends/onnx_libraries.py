"""Libraries of custom operators, found as Triton finds them."""

from __future__ import annotations

import logging
from pathlib import Path, PurePosixPath
from typing import Any

from repobuild_serve.backends.onnx_errors import onnx_text
from repobuild_serve.errors import Code, LoadError

_LOG = logging.getLogger(__name__)


def register_libraries(options: Any, config: Any, path: Path) -> None:
    """Register the operators of a model's libraries with a session's options.

    ``op_library_filename`` goes to the dynamic linker as it is: a bare name is looked for in
    ``LD_LIBRARY_PATH``, a relative path from the folder that the server was started in
    (https://github.com/triton-inference-server/onnxruntime_backend, src/onnxruntime.cc).

    Args:
        options: ``onnxruntime.SessionOptions``, changed in place.
        config: ModelConfig message.
        path: The model's file in its version folder.

    Raises:
        LoadError: A library is not found, or is none of operators.
    """
    for name in config.model_operations.op_library_filename:
        _LOG.info("model %s: its operators come from the library %s", config.name, name)
        try:
            options.register_custom_ops_library(name)
        except Exception as exc:
            text = onnx_text(exc) or f"onnx runtime error: {exc}"
            raise LoadError(f"{text}{_advice(name, path)}", Code.INTERNAL) from exc


def _advice(name: str, path: Path) -> str:
    """Where the library lies after all, if it came with the model."""
    folder = path.parent.parent
    if name != PurePosixPath(name).name or not (folder / name).is_file():
        return ""
    return f"; it lies in the model's folder: start the server with LD_LIBRARY_PATH={folder.resolve()}"
