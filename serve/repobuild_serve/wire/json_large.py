"""Reading a large JSON request without an object per number.

simdjson hands the numbers of an array over as one buffer, which takes half the time of lists of Python floats
from a few KB on, and a fraction of their memory. Like ``wire.json_fast``, the functions made here accept only
what they can check completely, and leave everything else, right or wrong, to ``wire.json_request``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from repobuild_serve.core.ticket import Context, Ticket
from repobuild_serve.wire.json_fast import Reader
from repobuild_serve.wire.plan import ALL_AS_JSON, Asked, InferPlan, Parsed, Shape

if TYPE_CHECKING:
    import simdjson

LARGE = 4096
"""Bodies from this size on, in bytes, are worth it."""
_LARGEST = 4 << 20
"""Bodies up to this size, in bytes; a parser keeps some ten times the size of the largest."""
_WIDE = {"f": ("d", "<f8"), "i": ("i", "<i8"), "u": ("u", "<u8")}
"""How numbers are read, and the NumPy type of what comes, by kind of the element type."""
_UNUSUAL = (AttributeError, KeyError, TypeError, ValueError, IndexError, RuntimeError)


def large_reader(plan: InferPlan, otherwise: Reader) -> Reader:
    """Make the reading function of one model version for large bodies.

    Args:
        plan: The model.
        otherwise: What reads bodies that are not read here.

    Returns:
        A function like those of ``wire.json_fast.reader``; ``otherwise`` itself where simdjson is not
        installed or the model's inputs are not all numbers.
    """
    if any(not item.config.datatype.code or item.config.optional for item in plan.inputs):
        return otherwise
    try:
        import numpy as np
        import simdjson
    except ImportError:
        return otherwise
    parser = simdjson.Parser()
    table = {}
    for index, item in enumerate(plan.inputs):
        datatype = item.config.datatype
        narrow = np.dtype(datatype.numpy)
        kind, wide = _WIDE[narrow.kind]
        table[item.config.name] = (index, datatype.wire, item.shapes, kind, np.dtype(wide), narrow)
    count, key_of, buffer_of = len(table), plan.key, np.frombuffer

    def read(body: bytes, arrived: int) -> Parsed | None:
        if len(body) > _LARGEST:
            return otherwise(body, arrived)
        try:
            return read_document(parser.parse(body), arrived)
        except _UNUSUAL:
            return None

    def read_document(document: Any, arrived: int) -> Parsed | None:
        buffers: list[bytes] = [b""] * count
        shapes: list[Shape | None] = [None] * count
        entries = document["inputs"]
        if len(entries) != count:
            return None
        for entry in entries:
            index, wire, known, kind, wide, narrow = table[entry["name"]]
            if entry["datatype"] != wire or len(entry) != 4 or shapes[index] is not None:
                return None
            shapes[index] = shape = known[_dims(entry["shape"])]
            numbers = buffer_of(entry["data"].as_buffer(of_type=kind), wide)
            if numbers.size != shape.count:
                return None
            # Through 64 bits, as Triton reads numbers; too large ones become infinite, or are cut.
            with np.errstate(over="ignore"):
                buffers[index] = numbers.astype(narrow).tobytes()
        found = [shape for shape in shapes if shape is not None]
        rows = found[0].rows
        if any(shape.rows != rows for shape in found):
            return None
        asked = ALL_AS_JSON if len(document) == 1 else _asked(document)
        dims = [shape.dims for shape in found]
        return Ticket(0, rows, arrived, buffers, dims, key_of(found), 0, 0, asked.context), asked

    return read


def _dims(shape: simdjson.Array) -> tuple[int, ...]:
    dims: list[int] = []
    for dim in shape:
        if type(dim) is not int:
            raise TypeError
        dims.append(dim)
    return tuple(dims)


def _asked(document: simdjson.Object) -> Asked:
    request_id = document["id"]
    if len(document) != 2 or type(request_id) is not str:
        raise ValueError
    return Asked(Context(request_id))
