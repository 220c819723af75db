"""Element types by number, wire name and NumPy type, as the python backend's API has them."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np

from repobuild_serve.python_child.failures import TritonModelException

WIRE_NAMES = (
    "INVALID",
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "FP32",
    "FP64",
    "BYTES",
    "BF16",
)
"""Wire name at the index that is the type's number."""
NUMBERS = {name: number for number, name in enumerate(WIRE_NAMES)}
BYTES = NUMBERS["BYTES"]
BF16 = NUMBERS["BF16"]
SIZES = (0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 0, 2)
"""Bytes per element, by number; 0 for BYTES."""
NUMPY: Dict[int, Any] = {
    1: np.bool_,
    2: np.uint8,
    3: np.uint16,
    4: np.uint32,
    5: np.uint64,
    6: np.int8,
    7: np.int16,
    8: np.int32,
    9: np.int64,
    10: np.float16,
    11: np.float32,
    12: np.float64,
    13: np.object_,
}
DTYPES = {number: np.dtype(kind) for number, kind in NUMPY.items()}
_BY_DTYPE = {dtype: number for number, dtype in DTYPES.items()}


def number_of(dtype: np.dtype[Any]) -> int:
    """The number of a NumPy type.

    Raises:
        TritonModelException: There is none.
    """
    number = _BY_DTYPE.get(dtype)
    if number is None and dtype.type is np.bytes_:
        number = BYTES
    if number is None:
        raise TritonModelException("NumPy dtype is not supported.")
    return number
