"""A completed ModelConfig as JSON, the way Triton prints it (Triton contract, model config)."""

from __future__ import annotations

import math
import struct
from typing import Any

# 64-bit integers below these fields stay strings, as protobuf's JSON mapping has them.
_STRINGS_BELOW = frozenset({"cuda", "secondary_devices", "initial_state"})


def config_document(config: Any) -> dict[str, Any]:
    """The config as a JSON-ready dict.

    Every scalar, repeated field and map is there even at its default; unset sub-messages and unset oneof
    members are left out; enums stand by name, unknown ones by number; dims and times are numbers.
    """
    return _document(config, as_strings=False)


def _document(message: Any, *, as_strings: bool) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        below = as_strings or field.name in _STRINGS_BELOW
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entry = field.message_type.fields_by_name["value"]
            document[field.name] = {str(key): _value(entry, value[key], below) for key in sorted(value)}
        elif field.is_repeated:
            document[field.name] = [_value(field, item, below) for item in value]
        else:
            document[field.name] = _value(field, value, below)
    return document


def _value(field: Any, value: Any, as_strings: bool) -> Any:
    if field.message_type is not None:
        return _document(value, as_strings=as_strings)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    if field.cpp_type in {field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE}:
        return _real(value, single=field.cpp_type == field.CPPTYPE_FLOAT)
    if as_strings and field.cpp_type in {field.CPPTYPE_INT64, field.CPPTYPE_UINT64}:
        return str(value)
    return value


def _real(value: float, *, single: bool) -> Any:
    """A number as protobuf's JSON has it: the shortest that is read back the same, and words for the rest."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if single:
        packed = struct.pack("<f", value)
        short = (float(f"{value:.{digits}g}") for digits in range(6, 9))
        value = next((v for v in short if _packed(v) == packed), value)
    whole = value.is_integer() and abs(value) < 1e15 and not (value == 0 and math.copysign(1, value) < 0)
    return int(value) if whole else value


def _packed(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return b""
