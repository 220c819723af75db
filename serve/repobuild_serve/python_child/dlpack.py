"""Tensors as DLPack capsules, by way of NumPy; bfloat16, which NumPy lacks, by changing the type code."""

from __future__ import annotations

import ctypes
from typing import Any, Tuple

import numpy as np

from repobuild_serve.python_child.failures import TritonModelException

CPU = 1
CUDA = 2
CUDA_HOST = 3
_NAME = b"dltensor"
# DLTensor: void* data, {int32 device, int32 device id}, int32 ndim, {uint8 code, uint8 bits, uint16 lanes}
_CODE_OFFSET = 8 + 8 + 4
_UNSIGNED = 1
_BFLOAT = 4


def export(array: np.ndarray[Any, Any], *, bfloat: bool) -> Any:
    """A capsule of an array, which shares its memory.

    Args:
        array: C-contiguous; the bits of bfloat16 as ``uint16``.
        bfloat: Whether the capsule is to say bfloat16.
    """
    # NumPy exports no array that must not be written to, which an old capsule could not say.
    capsule = (array if array.flags.writeable else array.copy()).__dlpack__()
    if bfloat:
        ctypes.c_uint8.from_address(_address(capsule) + _CODE_OFFSET).value = _BFLOAT
    return capsule


class _Holder:
    """What ``numpy.from_dlpack`` wants in place of a bare capsule."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> Tuple[int, int]:
        return CPU, 0


def take(tensor: Any) -> Tuple[np.ndarray[Any, Any], bool]:
    """The array in a capsule, or in an object that exports one; shares its memory.

    Returns:
        The array, and whether its elements, then of ``uint16``, are the bits of bfloat16.

    Raises:
        TritonModelException: The object is none of the two, or lies on a GPU.
    """
    capsule = tensor
    if type(tensor).__name__ != "PyCapsule":
        if not (hasattr(tensor, "__dlpack__") and hasattr(tensor, "__dlpack_device__")):
            raise TritonModelException(
                "Provided tensor is not supported. Tensor must be a DLPack capsule or have `__dlpack__` and "
                "`__dlpack_device__` attributes"
            )
        device = tensor.__dlpack_device__()[0]
        if device == CUDA:
            raise TritonModelException(
                "DLPack capsule passed pointer to memory allocated on GPU device, which this server does not "
                "take: move the tensor to the CPU first"
            )
        if device not in (CPU, CUDA_HOST):
            raise TritonModelException(f"DLDevice type {int(device)} is not support by Python backend.")
        capsule = tensor.__dlpack__()
    code = ctypes.c_uint8.from_address(_address(capsule) + _CODE_OFFSET)
    bfloat = code.value == _BFLOAT
    if bfloat:
        code.value = _UNSIGNED
    array = np.from_dlpack(_Holder(capsule))
    if not array.flags.c_contiguous:
        raise TritonModelException(
            "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are "
            "supported."
        )
    return array, bfloat


def _address(capsule: Any) -> int:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(pointer(capsule, _NAME))
