"""Reading the usual JSON request at the least cost.

``read`` accepts only what it can check completely; whatever looks unusual, right or wrong, is left to
``wire.json_request``, which knows every case and every error text.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any

import orjson

from repobuild_serve.wire.plan import InferPlan, InferRequest

if TYPE_CHECKING:
    from repobuild_serve.core.ticket import Buffer

_DEPTH = 64
_UNUSUAL = (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError)


def reader(plan: InferPlan) -> Callable[[bytes], InferRequest | None]:
    """Make the reading function of one model version.

    Returns:
        A function from a request body to the request, or None if the body is not of the usual form.
    """
    if any(not item.config.datatype.typecode for item in plan.inputs):
        return lambda _: None
    cuts = [
        _cut(item.config.datatype.read_size, item.config.datatype.size, item.config.datatype.numpy)
        for item in plan.inputs
    ]
    table = {
        item.config.name: (
            index,
            item.config.datatype.wire,
            item.config.datatype.typecode,
            item.shapes,
            cuts[index],
        )
        for index, item in enumerate(plan.inputs)
    }
    count = len(table)
    variable = plan.variable
    loads, keyed = orjson.loads, plan.key
    if count != len(plan.inputs):
        return lambda _: None

    def read(body: bytes) -> InferRequest | None:
        # true and false would pass for numbers below.
        if b"true" in body or b"false" in body:
            return None
        try:
            document = loads(body)
            items = document["inputs"]
            request_id = ""
            if len(document) != 1:
                request_id = document["id"]
                if len(document) != 2 or type(request_id) is not str:
                    return None
            if len(items) != count:
                return None
            buffers: list[Buffer] = [b""] * count
            shapes: list[Any] = [None] * count
            for item in items:
                index, wire, typecode, known, cut = table[item["name"]]
                if item["datatype"] != wire or len(item) != 4:
                    return None
                shape = known[array("q", item["shape"]).tobytes()]
                data = item["data"]
                depth = 0
                while type(data[0]) is list:
                    data = data[0] if len(data) == 1 else list(chain.from_iterable(data))
                    depth += 1
                    if depth > _DEPTH:
                        return None
                packed = array(typecode, data)
                if len(packed) != shape.count or shapes[index] is not None or type(data) is not list:
                    return None
                buffers[index] = packed if cut is None else cut(packed)
                shapes[index] = shape
        except _UNUSUAL:
            return None
        rows: int = shapes[0].rows
        if count > 1:
            for shape in shapes:
                if shape.rows != rows:
                    return None
        return InferRequest(
            rows, buffers, [shape.dims for shape in shapes], keyed(shapes) if variable else None, request_id
        )

    return read


def _cut(read_size: int, size: int, numpy_name: str) -> Callable[[array[Any]], bytes] | None:
    """How 64-bit integers become those of the tensor: they are cut, as Triton does; None if there is nothing to cut."""
    if read_size == size:
        return None
    import numpy as np

    wide = np.dtype("<i8") if "i" in numpy_name else np.dtype("<u8")
    narrow = np.dtype(numpy_name)
    return lambda packed: np.frombuffer(packed, dtype=wide).astype(narrow).tobytes()
