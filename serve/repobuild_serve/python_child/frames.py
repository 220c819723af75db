"""Messages between the server and a child process: a small JSON head and raw buffers.

A frame is a prelude, the sizes of the buffers, the head, and the buffers, each padded so that the next one
starts at a multiple of ``ALIGNMENT`` bytes from the first::

    <u4 bytes of the head> <u4 number of buffers> <u8 bytes of all padded buffers>
    <u8 size> ...
    head, UTF-8 JSON
    buffer, padding, buffer, padding, ...

Nothing is ever pickled.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Iterable, List, Sequence, Tuple

PRELUDE = struct.Struct("<IIQ")
ALIGNMENT = 16
_PADDING = bytes(ALIGNMENT)
_HEADS = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encode(head: Any, buffers: Sequence[Any] = ()) -> List[Any]:
    """The pieces of a frame, to be sent one after the other.

    Args:
        head: JSON-ready. Text that is no Unicode, such as a lone surrogate, is sent as question marks.
        buffers: Bytes-like objects of items of one byte.
    """
    text = _HEADS.encode(head).encode("utf-8", "replace")
    if not buffers:
        return [PRELUDE.pack(len(text), 0, 0), text]
    sizes = [len(buffer) for buffer in buffers]
    body: List[Any] = []
    total = 0
    for buffer, size in zip(buffers, sizes):
        if not size:
            continue
        body.append(buffer)
        padding = -size % ALIGNMENT
        if padding:
            body.append(_PADDING[:padding])
        total += size + padding
    lead = PRELUDE.pack(len(text), len(sizes), total) + struct.pack(f"<{len(sizes)}Q", *sizes)
    return [lead, text, *body]


def lead_size(prelude: Tuple[int, int, int]) -> int:
    """Bytes before the buffers of a frame with this prelude."""
    head, count, _ = prelude
    return PRELUDE.size + 8 * count + head


def read_lead(data: Any, start: int, prelude: Tuple[int, int, int]) -> Tuple[Any, Tuple[int, ...]]:
    """The head and the sizes of the buffers of the frame that begins at ``start`` of ``data``."""
    length, count, _ = prelude
    position = start + PRELUDE.size
    sizes = struct.unpack_from(f"<{count}Q", data, position) if count else ()
    position += 8 * count
    return json.loads(bytes(data[position : position + length])), sizes


def split(body: memoryview, sizes: Iterable[int]) -> List[memoryview]:
    """The buffers in the part of a frame behind its head."""
    buffers: List[memoryview] = []
    start = 0
    for size in sizes:
        buffers.append(body[start : start + size])
        start += size + -size % ALIGNMENT
    return buffers
