"""JSON text to Python values for bodies that are not the usual ones, with rapidjson's error messages.

NaN and Infinity literals are accepted, as Triton accepts them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import orjson

from repobuild_serve.errors import Code, RequestError

MAX_DEPTH = 100
_STEP = 1 << 16
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ODD_BYTES = re.compile("[\udc80-\udcff]")
_RAPIDJSON = re.compile(r"Parse error at offset (\d+): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pairs:
    """A JSON object with every member it has, also those of one name."""

    pairs: list[tuple[str, Any]]


def load_json(body: bytes) -> Any:
    """Parse a JSON text.

    Raises:
        RequestError: The text is nested deeper than ``MAX_DEPTH`` or is no JSON (E6 of the Triton contract).
    """
    body = body.removeprefix(b"\xef\xbb\xbf")
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and deeper_than(body, MAX_DEPTH):
        raise RequestError(
            f"failed to parse the request JSON buffer: nesting depth exceeds the maximum of {MAX_DEPTH}"
        )
    body = body.removeprefix(_BYTE_ORDER_MARK)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return _load_lenient(body)


def load_pairs(body: bytes) -> list[tuple[str, Any]]:
    """The members of a JSON object, also those of one name; objects within it are ``Pairs``.

    Args:
        body: A text that ``load_json`` takes for an object.
    """
    document = json.loads(
        body.removeprefix(_BYTE_ORDER_MARK).decode("utf-8", "surrogateescape"), object_pairs_hook=Pairs
    )
    assert isinstance(document, Pairs)
    return document.pairs


def deeper_than(body: bytes, limit: int) -> bool:
    """Whether brackets outside strings are nested deeper than ``limit``; also tells of malformed texts."""
    import numpy as np

    brackets = _STRINGS.sub(b"", body).translate(None, _NOT_BRACKETS)
    level = 0
    for start in range(0, len(brackets), _STEP):
        part = np.frombuffer(brackets, dtype=np.uint8, count=min(_STEP, len(brackets) - start), offset=start)
        steps = np.where((part == ord("[")) | (part == ord("{")), 1, -1).cumsum()
        if level + int(steps.max()) > limit:
            return True
        level += int(steps[-1])
    return False


def _load_lenient(body: bytes) -> Any:
    import rapidjson

    # Bytes that are not UTF-8 become surrogates, which are written back as they were. For rapidjson they are
    # characters like others, so that a surrogate in an escape, which is an error, is not taken for one.
    text = body.decode("utf-8", "surrogateescape")
    plain, odd = _ODD_BYTES.subn("?", text)
    try:
        document = rapidjson.loads(plain, number_mode=rapidjson.NM_NAN)
        return json.loads(text) if odd else document
    except rapidjson.JSONDecodeError as exc:
        # Not of the encoding, but of a control character, which the rapidjson in Triton tells otherwise.
        said = str(exc).replace("Invalid encoding in string.", "Invalid escape character in string.")
        raise _syntax(said) from exc
    except ValueError as exc:
        raise _syntax(f"Parse error at offset 0: {exc}") from exc


def _syntax(message: str) -> RequestError:
    found = _RAPIDJSON.match(message)
    offset, what = found.groups() if found else ("0", message)
    # Of a control character in a string; older releases, as in Triton, tell of it so.
    what = what.replace("Invalid encoding in string.", "Invalid escape character in string.")
    return RequestError(f"failed to parse the request JSON buffer: {what} at {offset}", Code.INTERNAL)
