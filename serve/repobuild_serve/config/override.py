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
        if not isinstance(value, dict):
            raise _refused(field, value, at)
        entry = field.message_type.fields_by_name["value"]
        return {
            key: _value(entry, item, f"{at}[{index}].value")
            for index, (key, item) in enumerate(value.items())
        }
    if field.is_repeated:
        if not isinstance(value, list):
            raise _refused(field, value, at)
        return [_value(field, item, f"{at}[{index}]") for index, item in enumerate(value)]
    return _value(field, value, at)


def _value(field: Any, value: Any, at: str) -> Any:
    if field.message_type is not None:
        if not isinstance(value, dict):
            raise _refused(field, value, at)
        return _message(field.message_type, value, at)
    if field.enum_type is not None:
        return _enum(field, value, at)
    if field.cpp_type == field.CPPTYPE_STRING:
        if isinstance(value, str):
            return value
    elif field.cpp_type == field.CPPTYPE_BOOL:
        if isinstance(value, bool):
            return value
        if value in ("true", "false"):
            return value == "true"
    elif field.cpp_type in {field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE}:
        if not isinstance(value, bool | list | dict):
            return value
    elif (number := _whole(value)) is not None and _fits(field, number):
        return number
    raise _refused(field, value, at)


def _enum(field: Any, value: Any, at: str) -> Any:
    names = field.enum_type.values_by_name
    if isinstance(value, str):
        name = value.upper().replace("-", "_")
        if name in names:
            return name
    number = _whole(value)
    if number is None or not -(1 << 31) <= number < 1 << 31:
        raise _refused(field, value, at)
    return number


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
