"""An ONNX model's signature against its config, and the config from the signature."""

from __future__ import annotations

from typing import Any

from repobuild_serve.config.settings import ModelSettings, TensorConfig
from repobuild_serve.datatypes import BY_CONFIG_NAME
from repobuild_serve.errors import ConfigError, LoadError

_ONNX_TYPES = {
    "tensor(bool)": "TYPE_BOOL",
    "tensor(uint8)": "TYPE_UINT8",
    "tensor(uint16)": "TYPE_UINT16",
    "tensor(uint32)": "TYPE_UINT32",
    "tensor(uint64)": "TYPE_UINT64",
    "tensor(int8)": "TYPE_INT8",
    "tensor(int16)": "TYPE_INT16",
    "tensor(int32)": "TYPE_INT32",
    "tensor(int64)": "TYPE_INT64",
    "tensor(float16)": "TYPE_FP16",
    "tensor(bfloat16)": "TYPE_BF16",
    "tensor(float)": "TYPE_FP32",
    "tensor(double)": "TYPE_FP64",
    "tensor(string)": "TYPE_STRING",
}
_DEFAULT_MAX_BATCH_SIZE = 4


def check(settings: ModelSettings, session: Any) -> None:
    """Check that the session has the tensors the settings speak of.

    Raises:
        LoadError: A name, element type, dim or the batch axis does not fit.
    """
    name = settings.name
    inputs = {item.name: item for item in session.get_inputs()}
    outputs = {item.name: item for item in session.get_outputs()}
    if len(settings.inputs) != len(inputs):
        raise LoadError(
            f"unable to load model '{name}', configuration expects {len(settings.inputs)} inputs, "
            f"model provides {len(inputs)}"
        )
    for tensors, known, role in ((settings.inputs, inputs, "input"), (settings.outputs, outputs, "output")):
        for tensor in tensors:
            if tensor.name not in known:
                allowed = ", ".join(sorted(known))
                raise LoadError(
                    f"unexpected inference {role} '{tensor.name}', allowed {role}s are: {allowed}"
                )
            _check_tensor(settings, tensor, known[tensor.name], exact=role == "output")


def _check_tensor(settings: ModelSettings, tensor: TensorConfig, found: Any, *, exact: bool) -> None:
    name, wanted = settings.name, tensor.datatype.config
    provided = _ONNX_TYPES.get(found.type)
    if provided is None:
        raise LoadError(
            f"unable to load model '{name}', tensor '{tensor.name}' has type {found.type}, which is no "
            "tensor of a known element type"
        )
    if provided != wanted:
        raise LoadError(
            f"unable to load model '{name}', configuration expects datatype {wanted} for tensor "
            f"'{tensor.name}', model provides {provided}"
        )
    if not tensor.datatype.numpy:
        raise LoadError(
            f"model '{name}', tensor '{tensor.name}': {wanted} is not supported by this server yet"
        )
    has = [dim if isinstance(dim, int) else -1 for dim in found.shape]
    wants = ([-1] if settings.batched else []) + list(tensor.model_dims)
    if not has and all(dim == 1 for dim in tensor.model_dims) and not settings.batched:
        return
    if settings.batched and has and has[0] != -1:
        raise LoadError(
            f"model '{name}', tensor '{tensor.name}': for the model to support batching the shape should "
            "have at "
            "least 1 dimension and the first dimension must be -1; but shape expected by the model is "
            f"{_dims(has)}"
        )
    fits = len(has) == len(wants) and all(
        model == config or (not exact and model == -1) for model, config in zip(has, wants, strict=True)
    )
    if not fits:
        batch = " (with the batch dimension first)" if settings.batched else ""
        raise LoadError(
            f"model '{name}', tensor '{tensor.name}': the model expects {len(has)} dimensions (shape "
            f"{_dims(has)}) "
            f"but the model configuration specifies {len(wants)} dimensions{batch} (shape {_dims(wants)})"
        )


def complete(config: Any, session: Any) -> None:
    """Fill inputs, outputs, max_batch_size and dynamic batching that the config leaves out.

    Batching is assumed if and only if dim 0 of every input and output is variable.

    Raises:
        ConfigError: The config asks for batching and the model does not allow it.
    """
    sides = ((config.input, session.get_inputs()), (config.output, session.get_outputs()))
    shapes = [[d if isinstance(d, int) else -1 for d in item.shape] for _, items in sides for item in items]
    can_batch = all(shape and shape[0] == -1 for shape in shapes)
    if not can_batch and config.max_batch_size > 0:
        raise ConfigError(
            f"autofill failed for model '{config.name}': model does not support batching while non-zero "
            "max_batch_size is specified"
        )
    if can_batch and config.max_batch_size == 0:
        config.max_batch_size = _DEFAULT_MAX_BATCH_SIZE
    if config.max_batch_size > 1 and not config.WhichOneof("scheduling_choice"):
        config.dynamic_batching.SetInParent()
    for section, items in sides:
        if not section:
            for item in items:
                _add_tensor(section.add(), item, config)


def _add_tensor(entry: Any, item: Any, config: Any) -> None:
    config_type = _ONNX_TYPES.get(item.type)
    if config_type is None:
        raise ConfigError(
            f"autofill failed for model '{config.name}': tensor '{item.name}' has type {item.type}, "
            "which is no tensor of a known element type"
        )
    entry.name = item.name
    numbers = entry.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_name
    entry.data_type = numbers[BY_CONFIG_NAME[config_type].config].number
    dims = [dim if isinstance(dim, int) else -1 for dim in item.shape]
    if config.max_batch_size > 0:
        dims = dims[1:]
    if not dims:
        dims = [1]
        if config.max_batch_size > 0:
            entry.reshape.SetInParent()
    entry.dims.extend(dims)


def _dims(dims: list[int]) -> str:
    return "[" + ",".join(map(str, dims)) + "]"
