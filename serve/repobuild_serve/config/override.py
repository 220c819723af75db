"""Reading the ``config`` parameter of the load API: a ModelConfig as JSON (Triton contract, JSON shapes).

Python's reader of protobuf JSON wants enum names in upper case and words its errors otherwise than the one
of C++, so the document is checked here first.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from repobuild_serve.errors import ConfigError
from repobuild_serve.messages import model_config_class


class _Wrong(ValueError):
    """A place of the document that is not as the message wants it."""


def parse_override(text: str) -> Any:
    """The ModelConfig message that a config override describes.

    Raises:
        ConfigError: The text is no JSON or no ModelConfig.
    """
    from google.protobuf import json_format

    config = model_config_class()()
    try:
        document = json.loads(text, parse_constant=_no_constant)
        if not isinstance(document, dict):
            raise _Wrong(": Root element must be a message.")
        json_format.ParseDict(_message(config.DESCRIPTOR, document, ""), config)
    except (ValueError, json_format.ParseError) as exc:
        raise ConfigError(f"Invalid config override: {exc}") from exc
    except RecursionError as exc:
        raise ConfigError("Invalid config override: nested too deeply") from exc
    return config


def _no_constant(word: str) -> NoReturn:
    raise _Wrong(f"Expected a value, got: {word}")


def _message(descriptor: Any, document: dict[str, Any], at: str) -> dict[str, Any]:
    """The members of ``document`` by field name, checked; ``null`` members are left out."""
    fields = {f.json_name: f for f in descriptor.fields} | {f.name: f for f in descriptor.fields}
    chosen: set[str] = set()
    found: dict[str, Any] = {}
    for key, value in document.items():
        field = fields.get(key)
        if field is None:
            where = f"({at}) " if at else ""
            raise _Wrong(f"{where}{key}: Cannot find field.")
        if value is None:
            continue
        if field.containing_oneof is not None:
            oneof = field.containing_oneof.name
            if oneof in chosen:
                what = f"oneof field '{oneof}' is already set. Cannot set '{key}'"
                raise _Wrong(f"{f'({at})' if at else ''}: invalid value {what} for type oneof")
            chosen.add(oneof)
        found[field.name] = _field(field, value, f"{at}.{field.name}" if at else field.name)
    return found


def _field(field: Any, value: Any, at: str) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        if isinstance(value, list):
            what = f"Cannot bind a list to map for field '{field.name}'."
            raise _Wrong(f"{_parent(at)}: invalid value {what} for type Map")
        if not isinstance(value, dict):
            raise _refused(field, value, at)
        entry = field.message_type.fields_by_name["value"]
        return {
            key: _item(entry, item, f"{at}[{index}].value") for index, (key, item) in enumerate(value.items())
        }
    if field.is_repeated:
        # One value stands for a list of it, and null in a list for nothing.
        many, items = isinstance(value, list), value if isinstance(value, list) else [value]
        return [
            _value(field, item, f"{at}[{index}]" if many else at)
            for index, item in enumerate(items)
            if item is not None
        ]
    if isinstance(value, list):
        inside = _parent(at)
        where = f"{inside} " if inside else ""
        raise _Wrong(f"{where}{field.name}: Proto field is not repeating, cannot start list.")
    return _value(field, value, at)


def _item(field: Any, value: Any, at: str) -> Any:
    """The value of a map's entry; ``null`` is the default."""
    if value is None:
        return {} if field.message_type is not None else field.default_value
    return _value(field, value, at)


def _value(field: Any, value: Any, at: str) -> Any:
    if field.message_type is not None:
        if not isinstance(value, dict):
            raise _refused(field, value, at)
        return _message(field.message_type, value, at)
    if isinstance(value, dict):
        what = "Starting an object on a scalar field"
        raise _Wrong(f"{_parent(at)}: invalid value {what} for type {field.name}")
    found = _enum(field, value) if field.enum_type is not None else _scalar(field, value)
    if found is None:
        raise _refused(field, value, at)
    return found


def _scalar(field: Any, value: Any) -> Any:
    """The value as the field's type; None if it is no such."""
    if field.cpp_type == field.CPPTYPE_STRING:
        return value if isinstance(value, str) else None
    if field.cpp_type == field.CPPTYPE_BOOL:
        return (
            _BOOLEANS.get(value.lower())
            if isinstance(value, str)
            else value
            if isinstance(value, bool)
            else None
        )
    if field.cpp_type in {field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE}:
        return _real(value)
    number = _whole(value)
    return number if number is not None and _fits(field, number) else None


def _enum(field: Any, value: Any) -> Any:
    if isinstance(value, str) and value.upper() in field.enum_type.values_by_name:
        return value.upper()
    number = _whole(value)
    return number if number is not None and -(1 << 31) <= number < 1 << 31 else None


def _real(value: Any) -> Any:
    if isinstance(value, bool):
        return None
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return value


def _whole(value: Any) -> int | None:
    """A JSON number, or a string of one, as an integer; None if it is none."""
    try:
        if isinstance(value, str):
            return int(value) if value.strip() == value and "_" not in value else None
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
    except ValueError:
        pass
    return None


def _fits(field: Any, number: int) -> bool:
    signed = field.cpp_type in {field.CPPTYPE_INT32, field.CPPTYPE_INT64}
    bits = 32 if field.cpp_type in {field.CPPTYPE_INT32, field.CPPTYPE_UINT32} else 64
    low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
    return low <= number < high


def _refused(field: Any, value: Any, at: str) -> _Wrong:
    kind = field.message_type or field.enum_type
    if kind is not None:
        type_name = f"type.googleapis.com/{kind.full_name}"
    else:
        type_name = _TYPE_NAMES.get(field.type, str(field.type))
    shown = json.dumps(value, ensure_ascii=False)
    return _Wrong(f"({at}): invalid value {shown} for type {type_name}")


def _parent(at: str) -> str:
    """The place that a field stands in, in the parentheses that Triton's texts have; empty at the top."""
    inside = at.rpartition(".")[0]
    return f"({inside})" if inside else ""


_BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(
    ("false", "f", "no", "n", "0"), False
)
"""Words that C++ protobuf takes for a boolean, in any case."""
_TYPE_NAMES = {
    1: "TYPE_DOUBLE",
    2: "TYPE_FLOAT",
    3: "TYPE_INT64",
    4: "TYPE_UINT64",
    5: "TYPE_INT32",
    8: "TYPE_BOOL",
    9: "TYPE_STRING",
    13: "TYPE_UINT32",
}
