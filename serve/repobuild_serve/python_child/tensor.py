"""``triton_python_backend_utils.Tensor``."""

from __future__ import annotations

import sys
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from repobuild_serve.python_child.datatypes import BF16, BYTES, DTYPES, number_of
from repobuild_serve.python_child.failures import TritonModelException
from repobuild_serve.python_child.strings import pack, unpack


class Tensor:
    """A named tensor in the memory of this process.

    Args:
        name: Tensor name.
        numpy_array: Its elements; of objects or ``S`` for BYTES.

    Raises:
        TypeError: The second argument is no array.
        TritonModelException: The name is empty, or the array's type is none of Triton's.
    """

    def __init__(self, name: str, numpy_array: np.ndarray[Any, Any]) -> None:
        if not isinstance(name, str) or not isinstance(numpy_array, np.ndarray):
            raise TypeError(
                "Tensor(name, numpy_array) takes a str and a numpy.ndarray, not "
                f"{type(name).__name__} and {type(numpy_array).__name__}"
            )
        self._name = _named(name)
        self._number = number_of(numpy_array.dtype)
        self._array: Optional[np.ndarray[Any, Any]] = _plain(numpy_array)
        self._packed: Any = None
        self._shape = self._array.shape

    @classmethod
    def received(cls, name: str, number: int, shape: Sequence[int], packed: memoryview) -> Tensor:
        """A tensor that came from the server.

        Args:
            name: Tensor name.
            number: Its type.
            shape: Its shape.
            packed: Its elements, little-endian; BYTES with a 4-byte length in front of each.
        """
        tensor = cls.__new__(cls)
        tensor._receive(name, number, shape, packed)  # noqa: SLF001 - in place of __init__
        return tensor

    def _receive(self, name: str, number: int, shape: Sequence[int], packed: memoryview) -> None:
        self._name = name
        self._number = number
        self._shape = tuple(shape)
        self._packed = packed
        self._array = None

    def name(self) -> str:
        """Tensor name."""
        return self._name

    def shape(self) -> List[int]:
        """Its shape, with the batch dim."""
        return list(self._shape)

    def triton_dtype(self) -> int:
        """The number of its type."""
        return self._number

    def is_cpu(self) -> bool:
        """Whether it lies in main memory, as every tensor does here."""
        return True

    def as_numpy(self) -> Any:
        """Its elements as an array, which may be written to; None for BF16, which NumPy lacks."""
        if self._array is None and self._number != BF16:
            if self._number == BYTES:
                self._array = unpack(self._packed).reshape(self._shape)
            else:
                flat = np.frombuffer(self._packed, dtype=DTYPES[self._number])
                self._array = flat.reshape(self._shape)
        return self._array

    def to_dlpack(self) -> Any:
        """A DLPack capsule of it.

        Raises:
            TritonModelException: It holds strings.
        """
        from repobuild_serve.python_child.dlpack import export

        if self._number == BYTES:
            raise TritonModelException("DLPack does not have support for string tensors.")
        if self._number == BF16:
            bits = np.frombuffer(self._packed, dtype=np.uint16).reshape(self._shape)
            return export(bits, bfloat=True)
        return export(self.as_numpy(), bfloat=False)

    def __dlpack__(self, stream: Any = None, **_: Any) -> Any:
        return self.to_dlpack()

    def __dlpack_device__(self) -> Tuple[int, int]:
        return 1, 0

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:
        """A tensor that shares the memory of a DLPack capsule, or of an object that exports one.

        Raises:
            TritonModelException: The memory cannot be shared.
        """
        from repobuild_serve.python_child.dlpack import take

        _named(name)
        array, bfloat = take(tensor)
        if not bfloat:
            return Tensor(name, array)
        return Tensor.received(name, BF16, array.shape, array.reshape(-1).view(np.uint8).data)

    def buffer(self) -> Any:
        """Its packed elements, to be sent."""
        if self._array is None:
            return self._packed
        if self._number == BYTES:
            return pack(self._array)
        return self._array.reshape(-1).view(np.uint8).data


def _named(name: str) -> str:
    if not name:
        raise TritonModelException("Tensor name cannot be an empty string.")
    return name


def _plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array, contiguous, without what a subclass makes of it: a matrix has always two dims."""
    array = array.view(np.ndarray)
    # ascontiguousarray would turn a scalar into one row.
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


if sys.byteorder != "little":  # pragma: no cover - none of Triton's platforms
    raise ImportError("tensors are little-endian, which this machine is not")
