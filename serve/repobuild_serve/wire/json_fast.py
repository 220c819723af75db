"""Reading the usual JSON request at the least cost.

The functions made here accept only what they can check completely; whatever looks unusual, right or wrong, is
left to ``wire.json_request``, which knows every case and every error text.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from itertools import chain
from typing import Any

import orjson

from repobuild_serve.core.ticket import Context, Ticket
from repobuild_serve.wire.plan import ALL_AS_JSON, Asked, InferPlan, Parsed, Shape

_MAX_DEPTH = 64
_REMEMBERED = 1024
_LONGEST_PREFIX = 1024
_DATA_KEY = b'"data":'
# The data is the last member of the only input, and "inputs" the last member of the document.
_SUFFIX = re.compile(rb"\](\s*\}\s*\]\s*\}\s*)\Z")
_UNUSUAL = (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError, struct.error)

Reader = Callable[[bytes, int], Parsed | None]


def reader(plan: InferPlan) -> Reader:
    """Make the reading function of one model version.

    Returns:
        A function from a request body and its time of arrival to the parsed request, or None if the body is
        not of the usual form.
    """
    readable = all(item.config.datatype.code and not item.config.optional for item in plan.inputs)
    if not readable or len(plan.inputs_by_name) != len(plan.inputs):
        return _reads_nothing
    return _reader_of_one(plan) if len(plan.inputs) == 1 else _reader_of_many(plan)


def _reads_nothing(body: bytes, arrived: int) -> Parsed | None:
    return None


def _reader_of_one(plan: InferPlan) -> Reader:
    (item,) = plan.inputs
    name, wire, known = item.config.name, item.config.datatype.wire, item.shapes
    variable, loads = plan.variable, orjson.loads
    # What stands before and after the data of a body is the same from one client and shape to the next. A
    # body whose surroundings were read before needs only its data read: prefix + value + suffix is then a
    # document of the same form, whatever the value.
    surroundings: dict[bytes, tuple[bytes, Shape]] = {}

    def read(body: bytes, arrived: int) -> Parsed | None:
        start = body.find(_DATA_KEY) + len(_DATA_KEY)
        around = surroundings.get(body[:start])
        if around is None or not body.endswith(around[0]):
            return read_whole(body, start, arrived)
        suffix, shape = around
        text = body[start : -len(suffix)]
        if text.find(b"e") >= 0 and _has_boolean(text):
            return None
        try:
            data = loads(text)
            if type(data[0]) is list:
                data = data[0] if len(data) == 1 and type(data[0][0]) is not list else _flat(data)
            packed = shape.pack(*data)
        except _UNUSUAL:
            return None
        return (
            Ticket(0, shape.rows, arrived, (packed,), (shape.dims,), ((shape.key,),) if variable else None),
            ALL_AS_JSON,
        )

    def read_whole(body: bytes, start: int, arrived: int) -> Parsed | None:
        if _has_boolean(body):
            return None
        try:
            document = loads(body)
            (entry,) = document["inputs"]
            if entry["name"] != name or entry["datatype"] != wire or len(entry) != 4:
                return None
            shape = known[_dims(entry["shape"])]
            data = entry["data"]
            packed = shape.pack(*_flat(data))
            asked = ALL_AS_JSON if len(document) == 1 else _asked(document)
        except _UNUSUAL:
            return None
        if asked is ALL_AS_JSON and start <= _LONGEST_PREFIX:
            suffix = _suffix(body, start, data)
            if suffix:
                if len(surroundings) >= _REMEMBERED:
                    surroundings.clear()
                surroundings[body[:start]] = (suffix, shape)
        key = ((shape.key,),) if variable else None
        ticket = Ticket(0, shape.rows, arrived, (packed,), (shape.dims,), key)
        ticket.context = asked.context
        return ticket, asked

    return read


def _reader_of_many(plan: InferPlan) -> Reader:
    table = {
        item.config.name: (index, item.config.datatype.wire, item.shapes)
        for index, item in enumerate(plan.inputs)
    }
    count, loads, key_of = len(table), orjson.loads, plan.key

    def read(body: bytes, arrived: int) -> Parsed | None:
        if _has_boolean(body):
            return None
        try:
            document = loads(body)
            buffers: list[bytes] = [b""] * count
            found: dict[int, Shape] = {}
            for entry in document["inputs"]:
                index, wire, known = table[entry["name"]]
                if entry["datatype"] != wire or len(entry) != 4:
                    return None
                found[index] = shape = known[_dims(entry["shape"])]
                data = entry["data"]
                buffers[index] = shape.pack(*_flat(data))
            if len(found) != count or len(document["inputs"]) != count:
                return None
            asked = ALL_AS_JSON if len(document) == 1 else _asked(document)
        except _UNUSUAL:
            return None
        shapes = [found[index] for index in range(count)]
        rows = shapes[0].rows
        if any(shape.rows != rows for shape in shapes):
            return None
        dims = [shape.dims for shape in shapes]
        return Ticket(0, rows, arrived, buffers, dims, key_of(shapes), 0, 0, asked.context), asked

    return read


def _suffix(body: bytes, start: int, data: Any) -> bytes:
    """What follows the value of ``data`` if the value reaches from ``start`` to there; else empty."""
    found = _SUFFIX.search(body, start)
    if found is None:
        return b""
    try:
        value = orjson.loads(body[start : found.start(1)])
    except orjson.JSONDecodeError:
        return b""
    return found[1] if value == data else b""


def _has_boolean(text: bytes) -> bool:
    """Whether true or false may stand in the text: they would pass for numbers."""
    return text.find(b"true") >= 0 or text.find(b"false") >= 0


def _dims(shape: list[int]) -> tuple[int, ...]:
    dims = tuple(shape)
    # A float among the dims makes their sum a float.
    if type(sum(dims)) is not int:
        raise TypeError
    return dims


def _flat(data: list[Any]) -> list[Any]:
    """Nested lists of equal depth as one list; anything else fails here or when it is packed."""
    for _ in range(_MAX_DEPTH):
        if type(data[0]) is not list:
            return data
        data = data[0] if len(data) == 1 else list(chain.from_iterable(data))
    raise ValueError


def _asked(document: dict[str, Any]) -> Asked:
    request_id = document["id"]
    if len(document) != 2 or type(request_id) is not str:
        raise ValueError
    return Asked(Context(request_id))
