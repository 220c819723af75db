"""The ``serving:`` section of a recipe: ModelConfig fields under Triton's own names."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from repobuild.errors import InputInvalid, evidence
from repobuild.triton import model_config

OWNED = {
    "name": "it is the recipe's own key 'name'",
    "platform": "the target decides it",
    "backend": "the target decides it",
    "input": "inputs: in the recipe name them",
    "output": "outputs: in the recipe name them",
    "model_warmup": "warm-up samples are made from the samples",
    "default_model_filename": "the target decides it",
    "cc_model_filenames": "the target decides it",
    "ensemble_scheduling": "an ensemble is made of several models, not of one",
}
"""Fields of ModelConfig that a recipe cannot set under ``serving:``, and why."""


def serving_mistakes(serving: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every mistake in a ``serving:`` section, with its key path inside the section."""
    for key in serving:
        if key in OWNED:
            yield (key,), f"this field cannot be set here: {OWNED[key]}"
    allowed = {k: v for k, v in serving.items() if k not in OWNED}
    yield from _mistakes(allowed, model_config().DESCRIPTOR, ())
    size = serving.get("max_batch_size")
    if isinstance(size, int) and not isinstance(size, bool) and size < 0:
        yield ("max_batch_size",), f"must be at least 0, got {size}"
    batching = serving.get("dynamic_batching")
    if isinstance(batching, dict):
        yield from _preferred_mistakes(batching.get("preferred_batch_size"), size)


def serving_config(serving: Mapping[str, Any]) -> Any:
    """A ModelConfig message with the fields that a recipe sets.

    Raises:
        InputInvalid: The section is wrong; :func:`serving_mistakes` says how in detail.
    """
    from google.protobuf import json_format

    message = model_config()
    try:
        json_format.ParseDict(dict(serving), message)
    except json_format.ParseError as problem:
        raise InputInvalid(
            "serving-invalid",
            "serving: does not make a Triton model configuration",
            evidence([str(problem)]),
            "fields bear the names of Triton's model_config.proto",
        ) from problem
    return message


def _mistakes(
    value: Any, descriptor: Any, at: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Walk a mapping against a message descriptor."""
    if not isinstance(value, dict):
        yield at, f"must be a mapping of {descriptor.name} fields, got {value!r}"
        return
    fields = {f.name: f for f in descriptor.fields}
    for key, child in value.items():
        here = (*at, key)
        if key not in fields:
            near = difflib.get_close_matches(key, fields, 1)
            also = f"; did you mean '{near[0]}'?" if near else ""
            yield here, f"Triton's {descriptor.name} has no field '{key}'{also}"
            continue
        yield from _field_mistakes(child, fields[key], here)


def _field_mistakes(
    value: Any, field: Any, at: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        if not isinstance(value, dict):
            yield at, f"must be a mapping, got {value!r}"
            return
        for key, child in value.items():
            yield from _one_mistake(child, message.fields_by_name["value"], (*at, key))
    elif _repeated(field):
        if not isinstance(value, list):
            yield at, f"must be a list, got {value!r}"
            return
        for index, child in enumerate(value):
            yield from _one_mistake(child, field, (*at, index))
    else:
        yield from _one_mistake(value, field, at)


def _one_mistake(
    value: Any, field: Any, at: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if field.message_type is not None:
        yield from _mistakes(value, field.message_type, at)
    elif field.enum_type is not None:
        names = [v.name for v in field.enum_type.values]
        if value not in names:
            yield at, f"must be one of {', '.join(names)}, got {value!r}"
    elif not _scalar_fits(value, field):
        yield at, f"must be {_KINDS[field.cpp_type]}, got {value!r}"


def _preferred_mistakes(sizes: Any, largest: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for index, size in enumerate(sizes if isinstance(sizes, list) else ()):
        if not isinstance(size, int) or isinstance(size, bool):
            continue
        at = ("dynamic_batching", "preferred_batch_size", index)
        if size < 1:
            yield at, f"a preferred batch size must be positive, got {size}"
        elif isinstance(largest, int) and size > largest:
            yield at, f"preferred batch size {size} is larger than max_batch_size {largest}"


_KINDS = {
    1: "a whole number",
    2: "a whole number",
    3: "a whole number of at least 0",
    4: "a whole number of at least 0",
    5: "a number",
    6: "a number",
    7: "true or false",
    9: "text",
}
"""What each protobuf ``FieldDescriptor.CPPTYPE_*`` takes, in words."""
_RANGES = {1: (-(2**31), 2**31), 2: (-(2**63), 2**63), 3: (0, 2**32), 4: (0, 2**64)}


def _scalar_fits(value: Any, field: Any) -> bool:
    kind = field.cpp_type
    if kind in _RANGES:
        low, high = _RANGES[kind]
        return isinstance(value, int) and not isinstance(value, bool) and low <= value < high
    if kind in (5, 6):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, bool) if kind == 7 else isinstance(value, str)


def _repeated(field: Any) -> bool:
    """Whether a field is a list; newer protobuf deprecates ``label`` for ``is_repeated``."""
    told = getattr(field, "is_repeated", None)
    return bool(told) if told is not None else field.label == field.LABEL_REPEATED
