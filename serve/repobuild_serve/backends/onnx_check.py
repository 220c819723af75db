"""An ONNX model's signature against its config (Triton contract, ONNX load check)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from repobuild_serve.backends.parameters import shape_text
from repobuild_serve.config.settings import ModelSettings, TensorConfig, enum_name
from repobuild_serve.errors import Code, LoadError

CONFIG_TYPES = {
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
_OTHER_KINDS = {"seq": "SEQUENCE", "map": "MAP", "sparse_tensor": "SPARSETENSOR", "opaque": "OPAQUE"}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of a session.

    Attributes:
        name: Tensor name.
        config_type: Element type as config.pbtxt names it; empty if it has no name there.
        type: Element type as ONNX Runtime names it.
        dims: Shape; -1 is variable. Empty for rank 0, and for tensors whose rank is unknown.
    """

    name: str
    config_type: str
    type: str
    dims: tuple[int, ...]


def tensor_infos(nodes: Iterable[Any]) -> dict[str, TensorInfo]:
    """What a session says of its inputs or outputs, by name and in its order.

    Raises:
        LoadError: One is no tensor, e.g. the sequence of maps that a ZipMap node gives.
    """
    infos = {}
    for node in nodes:
        kind = node.type.partition("(")[0]
        if kind != "tensor":
            raise LoadError(
                f"Unsupported ONNX Type 'ONNX_TYPE_{_OTHER_KINDS.get(kind, 'UNKNOWN')}' for I/O "
                f"'{node.name}', expected 'ONNX_TYPE_TENSOR'.",
                Code.UNSUPPORTED,
            )
        dims = tuple(dim if isinstance(dim, int) else -1 for dim in node.shape)
        infos[node.name] = TensorInfo(node.name, CONFIG_TYPES.get(node.type, ""), node.type, dims)
    return infos


def check(settings: ModelSettings, session: Any) -> None:
    """Check that the session has the tensors the settings speak of.

    Raises:
        LoadError: A name, element type, dim or the batch axis does not fit.
    """
    inputs = tensor_infos(session.get_inputs())
    outputs = tensor_infos(session.get_outputs())
    defaults = tensor_infos(session.get_overridable_initializers())
    _check_count(settings, len(inputs))
    inputs |= defaults
    for item, entry in zip(settings.inputs, settings.message.input, strict=True):
        if entry.optional and settings.batched:
            raise LoadError(
                f"unable to load model '{settings.name}', optional input '{item.name}' is not supported for "
                "models that support batching"
            )
        found = _find(item, inputs, "input")
        _check_type(settings, item, found, "input")
        if entry.optional and item.name not in defaults:
            raise LoadError(
                f"unable to load model '{settings.name}', input '{item.name}' is optional in the "
                "configuration, but the model has no initializer that stands in for it"
            )
        if entry.allow_ragged_batch:
            _check_ragged(settings, item, found, optional=entry.optional)
        else:
            _check_dims(settings, item, found, exact=False)
    _check_extra(settings, inputs)
    scattered = {name for entry in settings.message.batch_output for name in entry.target_name}
    for item in settings.outputs:
        found = _find(item, outputs, "output")
        _check_type(settings, item, found, "output")
        if item.name not in scattered:
            _check_dims(settings, item, found, exact=True)


def _check_count(settings: ModelSettings, provided: int) -> None:
    message = settings.message
    expected = sum(not entry.optional for entry in message.input) + len(_extra_inputs(message))
    if expected != provided:
        raise LoadError(
            f"unable to load model '{settings.name}', configuration expects {expected} inputs, model "
            "provides "
            f"{provided}"
        )


def _extra_inputs(message: Any) -> list[str]:
    """Inputs of the model that no request names: batch inputs, sequence controls and states."""
    names = [name for entry in message.batch_input for name in entry.target_name]
    names += [name for name, _ in _controls(message)]
    return names + [state.input_name for state in message.sequence_batching.state]


def _controls(message: Any) -> list[tuple[str, str]]:
    """Name and config type of each sequence control input."""
    found = []
    for entry in message.sequence_batching.control_input:
        for control in entry.control:
            if enum_name(control, "kind") == "CONTROL_SEQUENCE_CORRID":
                config_type = enum_name(control, "data_type")
            elif control.int32_false_true:
                config_type = "TYPE_INT32"
            elif control.fp32_false_true:
                config_type = "TYPE_FP32"
            else:
                config_type = "TYPE_BOOL"
            found.append((entry.name, config_type))
    return found


def _check_extra(settings: ModelSettings, inputs: dict[str, TensorInfo]) -> None:
    name = settings.name
    for control, config_type in _controls(settings.message):
        if control not in inputs:
            raise LoadError(
                f"configuration specified sequence control '{control}', but model does not provide that "
                "input",
                Code.INTERNAL,
            )
        found = inputs[control]
        dims = found.dims[1:] if settings.batched else found.dims
        if dims != (1,):
            raise LoadError(
                f"unable to load model '{name}', sequence control '{control}' in model has dims "
                f"{shape_text(dims)} but dims [1] is expected"
            )
        if found.config_type != config_type:
            raise LoadError(
                f"unable to load model '{name}', sequence control '{control}', the model expects data-type "
                f"{found.config_type or found.type} but the model configuration specifies data-type "
                f"{config_type}"
            )
    for extra in _extra_inputs(settings.message):
        if extra not in inputs:
            raise LoadError(_unexpected("input", extra, inputs))


def _find(item: TensorConfig, known: dict[str, TensorInfo], role: str) -> TensorInfo:
    if item.name not in known:
        raise LoadError(_unexpected(role, item.name, known))
    return known[item.name]


def _unexpected(role: str, name: str, known: Iterable[str]) -> str:
    return f"unexpected inference {role} '{name}', allowed {role}s are: {', '.join(sorted(known))}"


def _check_type(settings: ModelSettings, item: TensorConfig, found: TensorInfo, role: str) -> None:
    name, wanted = settings.name, item.datatype.config
    if found.config_type != wanted:
        raise LoadError(
            f"unable to load model '{name}', configuration expects datatype {wanted} for {role} "
            f"'{item.name}', model provides {found.config_type or found.type}"
        )
    if not item.datatype.numpy:
        raise LoadError(
            f"unsupported datatype {wanted} for {role} '{item.name}' for model '{name}': NumPy, which the "
            "server hands data to ONNX Runtime with, has no such type"
        )


def _check_ragged(settings: ModelSettings, item: TensorConfig, found: TensorInfo, *, optional: bool) -> None:
    expects = (
        f"unable to load model '{settings.name}', configuration expects model provides input with shape [-1] "
    )
    if optional:
        raise LoadError(f"{expects}for ragged input '{item.name}', which is not supported for optional input")
    if found.dims != (-1,):
        raise LoadError(f"{expects} for ragged input '{item.name}', model provides {shape_text(found.dims)}")


def _check_dims(settings: ModelSettings, item: TensorConfig, found: TensorInfo, *, exact: bool) -> None:
    head = f"model '{settings.name}', tensor '{item.name}': "
    has, dims = found.dims, item.model_dims
    if not has and not settings.batched:
        if any(dim != 1 for dim in dims):
            raise LoadError(
                f"unable to load model '{settings.name}', scalar tensor '{item.name}', should only provide 1 "
                "in the model configuration when the model doesn't support batching. Model configuration "
                f"provided: {shape_text(dims)}."
            )
        return
    if settings.batched and (not has or has[0] != -1):
        raise LoadError(
            f"{head}for the model to support batching the shape should have at least 1 dimension and the "
            f"first dimension must be -1; but shape expected by the model is {shape_text(has)}"
        )
    wants = (-1, *dims) if settings.batched else dims
    fits = len(has) == len(wants) and all(
        model == config or (not exact and model == -1) for model, config in zip(has, wants, strict=True)
    )
    if not fits:
        batch = (
            "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, "
            "making complete "
        )
        raise LoadError(
            f"{head}the model expects {len(has)} dimensions (shape {shape_text(has)}) but the model "
            f"configuration specifies {len(wants)} dimensions ({batch if settings.batched else ''}shape "
            f"{shape_text(wants)})"
        )
