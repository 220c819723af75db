"""Which backend runs a model whose config does not say (Triton contract, auto-complete).

Triton does this also where auto-complete is off: it needs file names only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from repobuild_serve.errors import ConfigError

# In Triton's order: backend, platform that names it and is filled in, file name, whether it may be a folder.
_KINDS = (
    ("tensorrt", "tensorrt_plan", "model.plan", False),
    ("onnxruntime", "onnxruntime_onnx", "model.onnx", True),
    ("openvino", "", "model.xml", True),
    ("pytorch", "pytorch_libtorch", "model.pt", False),
    ("pytorch", "torch_aoti", "model.pt2", False),
    ("python", "", "model.py", True),
)


def fill_backend(config: Any, contents: Mapping[str, bool]) -> None:
    """Write backend, platform and file name into a ModelConfig message as far as they are known.

    A platform that no backend goes with is left for validation to refuse.

    Args:
        config: The message; its name is filled in.
        contents: Whether it is a folder, by name, for what lies in the first folder of the model (its
            name first in the order of strings); empty if there is none.

    Raises:
        ConfigError: Nothing tells the backend.
    """
    if not config.backend:
        found = _find(config, contents)
        if found is not None:
            config.backend, platform = found
            config.platform = config.platform or platform
    if not config.backend and not config.platform and not config.default_model_filename:
        _by_name(config)
        return
    for backend, platform, filename, _ in _KINDS:
        if backend == config.backend:
            config.platform = config.platform or platform
            if platform == config.platform or not platform:
                config.default_model_filename = config.default_model_filename or filename


def _find(config: Any, contents: Mapping[str, bool]) -> tuple[str, str] | None:
    platform, filename = config.platform, config.default_model_filename
    for backend, known, name, may_be_folder in _KINDS:
        if filename == name or (known and platform == known):
            return backend, known
        if not platform and not filename and name in contents and (may_be_folder or not contents[name]):
            return backend, known
    return ("pytorch", "") if platform == "libtorch" else None


def _by_name(config: Any) -> None:
    _, dot, suffix = config.name.partition(".")
    if not dot:
        raise ConfigError(
            f"Invalid model name: Could not determine backend for model '{config.name}' with no backend in "
            "model configuration. Expected model name of the form 'model.<backend_name>'."
        )
    config.backend = suffix
    config.default_model_filename = f"model.{suffix}"
