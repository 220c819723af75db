"""The checks made while a model folder is read, with Triton's texts (Triton contract, validation rules)."""

from __future__ import annotations

from typing import Any

from repobuild_serve.config.settings import enum_name
from repobuild_serve.errors import ConfigError

PLATFORMS = {
    "tensorrt_plan": "tensorrt",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
    "torch_aoti": "pytorch",
    "ensemble": "",
}


def validate_config(config: Any) -> None:
    """Check a ModelConfig message whose name, backend, inputs and outputs have been filled in.

    Raises:
        ConfigError: The first rule that is broken.
    """
    name = config.name
    if config.max_batch_size < 0:
        raise ConfigError(f"'max_batch_size' must be non-negative value for {name}")
    for item in config.input:
        _check_tensor(item, "input", config)
        if enum_name(item, "format") != "FORMAT_NONE" and len(item.dims) != 3:
            raise ConfigError(f"model input NHWC/NCHW require 3 dims for {name}")
    for item in config.output:
        _check_tensor(item, "output", config)
    if config.HasField("dynamic_batching"):
        _check_batching(config)


def validate_identity(config: Any, folder_name: str) -> None:
    """Check the model's name against its folder, and that its platform is known.

    Raises:
        ConfigError: The name differs or the platform is unknown.
    """
    if config.name and config.name != folder_name:
        raise ConfigError(
            f"unexpected directory name '{folder_name}' for model '{config.name}', "
            "directory name must equal model name"
        )
    if config.platform and config.platform not in PLATFORMS and not config.backend:
        raise ConfigError(f"unexpected platform type '{config.platform}' for {folder_name}")


def _check_tensor(item: Any, role: str, config: Any) -> None:
    name = config.name
    if not item.name:
        raise ConfigError(f"model {role} must specify 'name' for {name}")
    if enum_name(item, "data_type") == "TYPE_INVALID":
        raise ConfigError(f"model {role} '{item.name}' must specify 'data_type' for {name}")
    if not item.dims:
        raise ConfigError(f"model {role} '{item.name}' must specify 'dims' for {name}")
    if any(dim < 1 and dim != -1 for dim in item.dims):
        raise ConfigError(
            f"model {role} '{item.name}' dimension must be integer >= 1, or -1 to indicate a variable-size "
            f"dimension for {name}"
        )
    if item.HasField("reshape"):
        _check_reshape(item, role, config)
    if item.is_shape_tensor:
        raise ConfigError(f"shape tensors are only supported for TensorRT platform for {name}")
    if item.is_non_linear_format_io:
        raise ConfigError(f"Non-linear IO format is only supported for the TensorRT platform for {name}")


def _check_reshape(item: Any, role: str, config: Any) -> None:
    name, dims, shape = config.name, tuple(item.dims), tuple(item.reshape.shape)
    if not shape and config.max_batch_size == 0:
        raise ConfigError(
            f"model {role} '{item.name}' cannot have empty reshape for non-batching model as scalar tensors "
            f"are not supported for {name}"
        )
    if any(dim < 1 and dim != -1 for dim in shape):
        raise ConfigError(
            f"model {role} '{item.name}' reshape dimensions must be integer >= 1, or -1 to indicate a "
            f"variable-size dimension for {name}"
        )
    if dims.count(-1) != shape.count(-1):
        raise ConfigError(
            f"model {role} '{item.name}' has different number of variable-size dimensions for dims and "
            f"reshape for {name}"
        )
    if _fixed_parts(dims) != _fixed_parts(shape):
        raise ConfigError(f"model {role} '{item.name}' has different size for dims and reshape for {name}")


def _fixed_parts(dims: tuple[int, ...]) -> list[int]:
    """Element counts before, between and after the variable dims."""
    parts = [1]
    for dim in dims:
        if dim == -1:
            parts.append(1)
        else:
            parts[-1] *= dim
    return parts


def _check_batching(config: Any) -> None:
    name, batching = config.name, config.dynamic_batching
    for size in batching.preferred_batch_size:
        if size <= 0:
            raise ConfigError(f"dynamic batching preferred size must be positive for {name}")
        if size > config.max_batch_size:
            raise ConfigError(f"dynamic batching preferred size must be <= max batch size for {name}")
    levels = batching.priority_levels
    if levels:
        if not 1 <= batching.default_priority_level <= levels:
            raise ConfigError(f"default priority level must be in range [1, {levels}] for {name}")
        if any(not 1 <= level <= levels for level in batching.priority_queue_policy):
            raise ConfigError(
                f"priority queue policy must have priority level in range [1, {levels}] for {name}"
            )
    if batching.preserve_ordering:
        if levels > 1:
            raise ConfigError(
                f"Only one priority level is allowed when 'preserve_ordering' is true for {name}"
            )
        policies = [batching.default_queue_policy, *batching.priority_queue_policy.values()]
        if any(
            policy.default_timeout_microseconds and enum_name(policy, "timeout_action") == "DELAY"
            for policy in policies
        ):
            raise ConfigError(
                "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for "
                f"{name}"
            )
