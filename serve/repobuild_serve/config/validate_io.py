"""The checks of inputs, outputs and batch inputs and outputs (Triton contract, validation rules)."""

from __future__ import annotations

from typing import Any

from repobuild_serve.config.settings import enum_name
from repobuild_serve.errors import ConfigError


def validate_io(config: Any) -> None:
    """Check the inputs and outputs of a ModelConfig message, which must be complete.

    Raises:
        ConfigError: The first rule that is broken.
    """
    for item in config.input:
        _check_tensor(item, "input", config)
    for item in config.output:
        _check_tensor(item, "output", config)
    for item in config.batch_input:
        _check_batch_input(item, config)
    for item in config.batch_output:
        _check_batch_output(item, config)


def _check_tensor(item: Any, role: str, config: Any) -> None:
    name = config.name
    if not item.name:
        raise ConfigError(f"model {role} must specify 'name' for {name}")
    if not item.data_type:
        raise ConfigError(f"model {role} '{item.name}' must specify 'data_type' for {name}")
    if not _known(item, "data_type"):
        # Triton takes any number and fails at the first request.
        raise ConfigError(f"model {role} '{item.name}' has unknown 'data_type' {item.data_type} for {name}")
    if not item.dims:
        raise ConfigError(f"model {role} '{item.name}' must specify 'dims' for {name}")
    if item.HasField("reshape") and not item.reshape.shape and config.max_batch_size == 0:
        raise ConfigError(
            f"model {role} '{item.name}' cannot have empty reshape for non-batching model as scalar tensors "
            f"are not supported for {name}"
        )
    if any(dim < 1 and dim != -1 for dim in item.dims):
        raise ConfigError(
            f"model {role} '{item.name}' dimension must be integer >= 1, or -1 to indicate a variable-size "
            f"dimension for {name}"
        )
    if item.HasField("reshape"):
        _check_reshape(item, role, name)
    # Formats that have no name are taken by Triton too, and mean nothing.
    if (
        role == "input"
        and enum_name(item, "format") in {"FORMAT_NHWC", "FORMAT_NCHW"}
        and len(item.dims) != 3
    ):
        raise ConfigError(f"model input NHWC/NCHW require 3 dims for {name}")
    tensorrt = config.platform == "tensorrt_plan"
    if item.is_shape_tensor and not tensorrt:
        raise ConfigError(f"shape tensors are only supported for TensorRT platform for {name}")
    if item.is_non_linear_format_io:
        if not tensorrt:
            raise ConfigError(f"Non-linear IO format is only supported for the TensorRT platform for {name}")
        if len(item.dims) != 3:
            raise ConfigError(f"Non-linear IO format {role} requires 3 dims for {name}")


def _check_reshape(item: Any, role: str, name: str) -> None:
    dims, shape = tuple(item.dims), tuple(item.reshape.shape)
    if any(dim < 1 and dim != -1 for dim in shape):
        raise ConfigError(
            f"model {role} '{item.name}' reshape dimensions must be integer >= 1, or -1 to indicate a "
            f"variable-size dimension for {name}"
        )
    ours, theirs = _fixed_parts(dims), _fixed_parts(shape)
    if len(ours) != len(theirs) and -1 in dims and -1 in shape:
        raise ConfigError(
            f"model {role} '{item.name}' has different number of variable-size dimensions for dims and "
            f"reshape for {name}"
        )
    if ours != theirs:
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


def _check_batch_input(item: Any, config: Any) -> None:
    name = config.name
    if not _known(item, "kind"):
        raise ConfigError(f"unknown batch input kind '' for {name}")
    if len(item.source_input) != 1:
        raise ConfigError(
            f"batch input kind '{enum_name(item, 'kind')}' expects 1 source input, got "
            f"{len(item.source_input)} for {name}"
        )
    if enum_name(item, "data_type") not in {"TYPE_INT32", "TYPE_FP32"}:
        raise ConfigError(f"batch input data type must be TYPE_INT32 or TYPE_FP32 for {name}")
    _check_source(item, config)


def _check_batch_output(item: Any, config: Any) -> None:
    name = config.name
    if not _known(item, "kind") or enum_name(item, "kind") != "BATCH_SCATTER_WITH_INPUT_SHAPE":
        raise ConfigError(f"unknown batch output kind '' for {name}")
    if len(item.source_input) != 1:
        raise ConfigError(
            f"batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects 1 source input, got "
            f"{len(item.source_input)} for {name}"
        )
    _check_source(item, config)
    outputs = {output.name for output in config.output}
    seen: set[str] = set()
    for target in item.target_name:
        if target not in outputs:
            raise ConfigError(f"unknown target output name '{target}' for {name}")
        if target in seen:
            raise ConfigError(f"target output name '{target}' can only be specified once for {name}")
        seen.add(target)


def _check_source(item: Any, config: Any) -> None:
    inputs = {tensor.name for tensor in config.input}
    for source in item.source_input:
        if source not in inputs:
            raise ConfigError(f"unknown source input name '{source}' for {config.name}")


def _known(message: Any, field_name: str) -> bool:
    values = message.DESCRIPTOR.fields_by_name[field_name].enum_type.values_by_number
    return getattr(message, field_name) in values
