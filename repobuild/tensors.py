"""Tensor types as the whole project names them, and what flows between the steps."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]
    Batch: TypeAlias = Mapping[str, Array]
else:
    Array: TypeAlias = Any
    Batch: TypeAlias = Mapping[str, Any]


class DType(enum.Enum):
    """A tensor element type under its KServe v2 wire name.

    The value is the wire name; ``config`` is Triton's name in config.pbtxt, ``numpy`` the NumPy type
    (``object`` holding ``str`` for BYTES), ``onnx`` the ``TensorProto.DataType`` name.
    """

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"

    @property
    def config(self) -> str:
        """Triton's name in config.pbtxt: ``TYPE_FP32``, and ``TYPE_STRING`` for BYTES."""
        return "TYPE_STRING" if self is DType.BYTES else f"TYPE_{self.value}"

    @property
    def numpy(self) -> str:
        """The NumPy type name, ``object`` for BYTES."""
        return _NUMPY[self]

    @property
    def onnx(self) -> str:
        """The name in ``onnx.TensorProto.DataType``."""
        return _ONNX[self]

    @property
    def is_float(self) -> bool:
        """Whether answers of this type are compared with a tolerance; all others must be equal."""
        return self in (DType.FP16, DType.FP32, DType.FP64)

    @classmethod
    def of(cls, dtype: np.dtype[Any]) -> DType:
        """The wire type of a NumPy type; text of any kind is BYTES.

        Raises:
            ValueError: Triton has no such type (complex, dates, ...).
        """
        if dtype.kind in "OUS":
            return cls.BYTES
        for member, name in _NUMPY.items():
            if name == dtype.name:
                return member
        raise ValueError(f"no Triton type for NumPy type {dtype.name}")

    @classmethod
    def of_onnx(cls, elem_type: int) -> DType:
        """The wire type of an ONNX element type.

        Raises:
            ValueError: Triton has no such type.
        """
        from onnx import TensorProto

        name = TensorProto.DataType.Name(elem_type)
        for member, known in _ONNX.items():
            if known == name:
                return member
        raise ValueError(f"no Triton type for ONNX type {name}")


_NUMPY = {
    DType.BOOL: "bool",
    DType.UINT8: "uint8",
    DType.UINT16: "uint16",
    DType.UINT32: "uint32",
    DType.UINT64: "uint64",
    DType.INT8: "int8",
    DType.INT16: "int16",
    DType.INT32: "int32",
    DType.INT64: "int64",
    DType.FP16: "float16",
    DType.FP32: "float32",
    DType.FP64: "float64",
    DType.BYTES: "object",
}
_ONNX = {
    DType.BOOL: "BOOL",
    DType.UINT8: "UINT8",
    DType.UINT16: "UINT16",
    DType.UINT32: "UINT32",
    DType.UINT64: "UINT64",
    DType.INT8: "INT8",
    DType.INT16: "INT16",
    DType.INT32: "INT32",
    DType.INT64: "INT64",
    DType.FP16: "FLOAT16",
    DType.FP32: "FLOAT",
    DType.FP64: "DOUBLE",
    DType.BYTES: "STRING",
}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a graph.

    Attributes:
        name: Tensor name, as clients use it.
        dtype: Element type.
        shape: Every axis, the batch axis included; ``None`` is a free axis.
    """

    name: str
    dtype: DType
    shape: tuple[int | None, ...]

    def dims(self, *, batched: bool) -> tuple[int, ...]:
        """The ``dims`` of config.pbtxt: -1 for a free axis, without the batch axis if ``batched``."""
        return tuple(-1 if d is None else d for d in (self.shape[1:] if batched else self.shape))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form; free axes are -1."""
        return {
            "name": self.name,
            "datatype": self.dtype.value,
            "shape": [-1 if d is None else d for d in self.shape],
        }


@dataclass(frozen=True, slots=True)
class Signature:
    """What goes into and comes out of an artifact.

    Attributes:
        inputs: Inputs in graph order.
        outputs: Outputs in graph order.
        batched: Whether axis 0 of every tensor is a batch axis that Triton may fill.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batched: bool


def rows(batch: Batch) -> int:
    """The length of axis 0 that all arrays of a batch share.

    Raises:
        ValueError: The batch is empty or its arrays differ in length.
    """
    lengths = {name: len(array) for name, array in batch.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"arrays of one batch must have one length, got {lengths}")
    return next(iter(lengths.values()))


def held_by_float32(values: Array) -> bool:
    """Whether a float32 holds every one of these floats exactly."""
    import numpy as np

    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32).astype(np.float64)
    return np.array_equal(narrow, values.astype(np.float64), equal_nan=True)


def take(batch: Batch, start: int, stop: int) -> Batch:
    """Rows ``start`` to ``stop`` of every array (views)."""
    return {name: array[start:stop] for name, array in batch.items()}
