"""Numbers and strings as JSON texts, the way Triton writes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson

from repobuild_serve.core.ticket import Scalar

if TYPE_CHECKING:
    import numpy as np


def number_rows(array: np.ndarray[Any, Any]) -> list[bytes]:
    """Each row's elements as JSON, joined by commas.

    FP32 values print as the shortest text of their double value; NaN and infinities as the literals ``NaN``,
    ``Infinity`` and ``-Infinity`` (Triton contract, datatypes).

    Args:
        array: C-contiguous, ``[rows, width]``, of a bool, integer or floating type.
    """
    import numpy as np

    rows, width = array.shape
    if not rows or not width:
        return [b""] * rows
    if array.dtype.kind == "f":
        array = array.astype(np.float64, copy=False)
    text = orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" in text:
        return [json.dumps(row, separators=(",", ":"))[1:-1].encode() for row in array.tolist()]
    return text[2:-2].split(b"],[")


def string_json(element: bytes) -> bytes:
    """A string as JSON; bytes that are not UTF-8 stand in it as they are, as with Triton."""
    try:
        return orjson.dumps(element.decode("utf-8"))
    except UnicodeDecodeError:
        text = json.dumps(element.decode("utf-8", "surrogateescape"), ensure_ascii=False)
        return text.encode("utf-8", "surrogateescape")


def scalar_json(value: Scalar) -> bytes:
    """A parameter or a name as JSON."""
    if isinstance(value, str):
        return string_json(value.encode("utf-8", "surrogateescape"))
    # Unlike orjson, json writes NaN and infinities, and integers of any size.
    return json.dumps(value).encode()
