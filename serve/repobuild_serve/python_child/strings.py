"""BYTES elements and their packed form: a 4-byte little-endian length, then the bytes."""

from __future__ import annotations

import struct
from typing import Any, List

import numpy as np

_LENGTH = struct.Struct("<I")


def pack(array: np.ndarray[Any, Any]) -> bytes:
    """Pack an array of objects or of ``S``; what is no ``bytes`` is packed as its text."""
    pieces: List[bytes] = []
    for item in array.ravel().tolist():
        element = item if isinstance(item, bytes) else str(item).encode("utf-8")
        pieces.append(_LENGTH.pack(len(element)))
        pieces.append(element)
    return b"".join(pieces)


def unpack(buffer: Any) -> np.ndarray[Any, Any]:
    """Take a packed buffer apart.

    Raises:
        struct.error: The buffer is cut.
    """
    view = memoryview(buffer)
    elements: List[bytes] = []
    position, end = 0, len(view)
    while position < end:
        (length,) = _LENGTH.unpack_from(view, position)
        position += 4
        if position + length > end:
            raise struct.error(f"the string at byte {position} of {end} is cut")
        elements.append(bytes(view[position : position + length]))
        position += length
    array = np.empty(len(elements), dtype=np.object_)
    array[:] = elements
    return array
