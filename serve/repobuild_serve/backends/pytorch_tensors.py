"""NumPy arrays to PyTorch tensors and back (Triton contract, PyTorch backend)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from repobuild_serve.backends.strings import decoded
from repobuild_serve.config.settings import ModelSettings, TensorConfig
from repobuild_serve.errors import Code, LoadError, RequestError

if TYPE_CHECKING:
    import numpy as np

_TORCH_TYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}
_WIRE_NAMES = {name: wire for wire, name in _TORCH_TYPES.items()}


def check_types(settings: ModelSettings, *, strings: bool) -> None:
    """Check that PyTorch models can take and give the element types of a config.

    Args:
        settings: The model's configuration.
        strings: Whether the kind of file knows lists of strings.

    Raises:
        LoadError: A type cannot be had, or a string tensor has more than one dim.
    """
    for role, items in (("input", settings.inputs), ("output", settings.outputs)):
        for item in items:
            wire = item.datatype.wire
            if wire not in _TORCH_TYPES and not (strings and wire == "BYTES"):
                raise LoadError(
                    f"unsupported datatype {item.datatype.config} for {role} '{item.name}' for model "
                    f"'{settings.name}'",
                    Code.INTERNAL,
                )
            if wire == "BYTES" and len(item.model_dims) + settings.batched > 1:
                raise LoadError(
                    f"Triton only supports 1 dimensional List of String as {role} for '{item.name}' for "
                    "model "
                    f"'{settings.name}'",
                    Code.INTERNAL,
                )


def torch_type(torch: Any, item: TensorConfig) -> Any:
    """The ``torch.dtype`` of a tensor of the config."""
    return getattr(torch, _TORCH_TYPES[item.datatype.wire])


def type_name(dtype: Any) -> str:
    """Config name of a ``torch.dtype``, e.g. ``"TYPE_FP32"``, or PyTorch's own name where there is none."""
    name = str(dtype).removeprefix("torch.")
    return f"TYPE_{_WIRE_NAMES[name]}" if name in _WIRE_NAMES else name


def to_torch(torch: Any, item: TensorConfig, array: np.ndarray[Any, Any], device: Any) -> Any:
    """An input as the model takes it: a tensor, or a list of str for strings.

    Args:
        torch: The ``torch`` module.
        item: The input's configuration.
        array: Its data; a read-only array is copied, since a model may write into its inputs.
        device: ``torch.device`` of the tensor, or None for the CPU.

    Raises:
        RequestError: A string is not UTF-8.
    """
    if item.datatype.wire == "BYTES":
        return decoded(item.name, array).tolist()
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    return tensor if device is None else tensor.to(device)


def from_torch(torch: Any, item: TensorConfig, value: Any) -> np.ndarray[Any, Any]:
    """An output of the model as an array.

    Raises:
        RequestError: It is neither a tensor nor a list of str, has another type than the config says, or has
            no dims.
    """
    import numpy as np

    name = item.name
    if isinstance(value, torch.Tensor):
        found = type_name(value.dtype)
        if found != item.datatype.config:
            raise _wrong(
                f"configuration expects datatype {item.datatype.config} for output '{name}', model provides "
                f"{found}"
            )
        if value.dim() == 0:
            raise _wrong(f"output '{name}' is a scalar which is not supported.")
        array: np.ndarray[Any, Any] = value.detach().cpu().contiguous().numpy()
        return array
    if isinstance(value, list) and all(isinstance(element, str) for element in value):
        if item.datatype.wire != "BYTES":
            raise _wrong(
                f"configuration expects datatype {item.datatype.config} for output '{name}', model provides "
                "TYPE_STRING"
            )
        texts = np.empty(len(value), dtype=object)
        texts[:] = value
        return texts
    raise _wrong(f"output '{name}' must be of type Tensor or List[str].")


def _wrong(text: str) -> RequestError:
    return RequestError(text, plain=True)
