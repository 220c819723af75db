"""BYTES elements in their packed form: a 4-byte little-endian length, then the bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from repobuild_serve.errors import RequestError

if TYPE_CHECKING:
    import numpy as np

_LENGTH = struct.Struct("<I")


def pack(elements: Iterable[bytes]) -> bytes:
    """Pack elements one after the other."""
    pieces: list[bytes] = []
    for element in elements:
        pieces.append(_LENGTH.pack(len(element)))
        pieces.append(element)
    return b"".join(pieces)


def unpack_strings(buffer: Any) -> list[bytes]:
    """Take a packed buffer apart.

    Args:
        buffer: Bytes-like and well-formed, as ``count_strings`` has checked it.
    """
    view = memoryview(buffer)
    elements: list[bytes] = []
    position, end = 0, len(view)
    while position < end:
        (length,) = _LENGTH.unpack_from(view, position)
        position += 4
        elements.append(bytes(view[position : position + length]))
        position += length
    return elements


def count_strings(buffer: Any) -> tuple[int, int, int]:
    """Walk a packed buffer that may be malformed.

    Returns:
        The number of whole elements; the bytes left over after them (0 if well-formed); and the length that
        the first broken element announces, or -1 if its length word itself is cut.
    """
    view = memoryview(buffer)
    count, position, end = 0, 0, len(view)
    while position < end:
        if end - position < 4:
            return count, end - position, -1
        (length,) = _LENGTH.unpack_from(view, position)
        if end - position - 4 < length:
            return count, end - position - 4, length
        position += 4 + length
        count += 1
    return count, 0, 0


def pack_strings(array: np.ndarray[Any, Any], rows: int) -> list[bytes]:
    """Pack an object array of ``bytes`` or ``str``, one buffer for each of its ``rows`` equal parts."""
    flat = [item if isinstance(item, bytes) else str(item).encode("utf-8") for item in array.ravel().tolist()]
    width = len(flat) // rows if rows else 0
    return [pack(flat[row * width : (row + 1) * width]) for row in range(rows)]


def not_text(name: str, error: UnicodeDecodeError) -> RequestError:
    """The error for a string of the input called ``name`` that is not UTF-8."""
    return RequestError(
        f"input '{name}' holds a string that is not UTF-8, which this backend cannot take: {error}"
    )
