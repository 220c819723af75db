"""One tensor's ``data`` member: JSON values to a packed buffer, with every check and text."""

from __future__ import annotations

from typing import Any

from repobuild_serve.datatypes import DataType
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.wire.access import accepts, checked, wrong_kind
from repobuild_serve.wire.strings import pack


def pack_json(
    data: Any, datatype: DataType, count: int, name: str, model: str, *, legacy: bool = False
) -> bytes:
    """Pack a ``data`` array.

    Args:
        data: The member's value, flat or nested in any way (row-major).
        datatype: Element type.
        count: Number of elements the shape calls for.
        name: Input name, for texts.
        model: Model name, for texts.
        legacy: Whether too few elements are told of as 24.10 does (V7).

    Raises:
        RequestError: E9, E21 or E35 of the Triton contract.
    """
    if datatype.wire in {"FP16", "BF16"}:
        raise RequestError(
            f"receiving {datatype.wire} data via JSON is not supported. Please use the binary data format "
            "for "
            f"input {name}"
        )
    flat = _flatten(checked(data, "data", "array"))
    if datatype.wire == "BYTES":
        return _pack_strings(flat, count, name, model)
    _check_count(len(flat), count, legacy=legacy)
    kinds = set(map(type, flat))
    if datatype.wire == "BOOL":
        if kinds - {bool}:
            raise wrong_kind("data", "boolean")
        return bytes(flat)
    if datatype.wire.startswith("FP"):
        if kinds - {int, float}:
            raise wrong_kind("data", "double")
        return _pack_floats(flat, datatype)
    if kinds - {int}:
        raise wrong_kind("data", _kind(datatype))
    return _pack_integers(flat, datatype)


def _kind(datatype: DataType) -> str:
    return "unsigned-integer" if datatype.wire.startswith("U") else "signed-integer"


def _flatten(data: list[Any]) -> list[Any]:
    if not any(isinstance(item, list) for item in data):
        return data
    flat: list[Any] = []
    for item in data:
        if isinstance(item, list):
            flat += _flatten(item)
        else:
            flat.append(item)
    return flat


def _check_count(got: int, count: int, *, legacy: bool) -> None:
    if got < count and not legacy:
        raise RequestError("Failed to parse 'data' field: shape does not match true shape", Code.INTERNAL)
    if got != count:
        raise RequestError(
            "Unable to parse 'data': Shape does not match true shape of 'data' field", Code.INTERNAL
        )


def _pack_floats(values: list[Any], datatype: DataType) -> bytes:
    """Through double, as Triton reads numbers; what is too large becomes infinite."""
    import numpy as np

    try:
        doubles = np.array(values, dtype="<f8")
    except OverflowError:
        doubles = np.array([as_double(value) for value in values], dtype="<f8")
    with np.errstate(over="ignore"):
        return doubles.astype(datatype.numpy).tobytes()


def as_double(value: Any) -> float:
    """A number as a double, infinite if it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _pack_integers(values: list[int], datatype: DataType) -> bytes:
    """Through 64 bits, then cut to the type, as Triton reads integers."""
    import numpy as np

    if not values:
        return b""
    kind = _kind(datatype)
    if not (accepts(min(values), kind) and accepts(max(values), kind)):
        raise wrong_kind("data", kind)
    wide = np.array(values, dtype="<u8" if kind == "unsigned-integer" else "<i8")
    return wide.astype(datatype.numpy).tobytes()


def _pack_strings(flat: list[Any], count: int, name: str, model: str) -> bytes:
    if set(map(type, flat)) - {str}:
        raise wrong_kind("data", "string", "Unable to parse JSON bytes array")
    if len(flat) < count:
        raise RequestError(
            f"expected {count} string elements for inference input '{name}' for model '{model}', got "
            f"{len(flat)}",
            tagged=True,
        )
    if len(flat) > count:
        raise RequestError(
            f"unexpected number of string elements {len(flat)} for inference input '{name}' for model "
            f"'{model}', "
            f"expecting {count}",
            tagged=True,
        )
    return pack(value.encode("utf-8", "surrogateescape") for value in flat)
