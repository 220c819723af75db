"""The recipe format as example lines: every key with its default, read off the models that check it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

from repobuild.recipe.types import DEFAULT_ATOL, DEFAULT_MAX_BATCH_SIZE, DEFAULT_RTOL

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

EFFECTIVE: Mapping[str, Any] = {
    "tolerance.atol": DEFAULT_ATOL,
    "tolerance.rtol": DEFAULT_RTOL,
    "targets.kind": "onnxruntime",
    "serving": {"max_batch_size": DEFAULT_MAX_BATCH_SIZE, "dynamic_batching": {}},
}
"""What a key that is left out comes to, where the model of the recipe has no default of its own."""


def example_sections(
    without: Collection[str], effective: Mapping[str, Any] | None = None
) -> tuple[tuple[str, ...], ...]:
    """The lines of every section of a recipe, one tuple a section.

    Args:
        without: Top-level keys to leave out.
        effective: Values to show in place of the model's own defaults, by key path.
    """
    from repobuild.recipe.schema import RecipeDocument

    shown = {**EFFECTIVE, **(effective or {})}
    return tuple(
        tuple(_field(_key(name, field), field, _key(name, field), shown, 0))
        for name, field in RecipeDocument.model_fields.items()
        if _key(name, field) not in without
    )


def section_lines(section: str, without: Collection[str]) -> tuple[str, ...]:
    """The lines of the keys inside one section.

    Args:
        section: Top-level key whose value is a mapping.
        without: Keys of it to leave out.
    """
    from repobuild.recipe.schema import RecipeDocument

    model = _model(RecipeDocument.model_fields[section])
    assert model is not None
    return tuple(
        line
        for name, field in model.model_fields.items()
        if _key(name, field) not in without
        for line in _field(_key(name, field), field, f"{section}.{_key(name, field)}", EFFECTIVE, 0)
    )


def _field(key: str, field: FieldInfo, path: str, shown: Mapping[str, Any], depth: int) -> Iterator[str]:
    blank = "  " * depth
    about = _about(field)
    model = _model(field)
    if model is None or path in shown:
        yield f"{blank}{key}: {_value(field, path, shown)}{about}"
        return
    yield f"{blank}{key}:{about or _about_model(model)}"
    first = "  - " if _is_list(field) else "  "
    for index, (name, inner) in enumerate(model.model_fields.items()):
        label = _key(name, inner)
        deep = depth + (2 if _is_list(field) else 1)
        for number, line in enumerate(_field(label, inner, f"{path}.{label}", shown, deep)):
            leads = _is_list(field) and index == 0 and number == 0
            yield f"{blank}{first}{line.lstrip()}" if leads else line


def _value(field: FieldInfo, path: str, shown: Mapping[str, Any]) -> str:
    value = shown[path] if path in shown else field.get_default(call_default_factory=True)
    try:
        return json.dumps(None if field.is_required() and path not in shown else value)
    except TypeError:
        return "null"


def _about(field: FieldInfo) -> str:
    return f"  # {field.description}" if field.description else ""


def _about_model(model: type[BaseModel]) -> str:
    """The docstring of a section, which begins with its key."""
    first = (model.__doc__ or "").strip().splitlines()[:1]
    words = first[0].rpartition("`` ")[2] if first and not first[0].startswith("One item") else ""
    return f"  # {words}" if words else ""


def _key(name: str, field: FieldInfo) -> str:
    return field.alias or name


def _is_list(field: FieldInfo) -> bool:
    return getattr(field.annotation, "__origin__", None) is list


def _model(field: FieldInfo) -> type[BaseModel] | None:
    """The model that a field holds, alone or in a list."""
    from pydantic import BaseModel

    waiting = [field.annotation]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
        waiting.extend(get_args(kind))
    return None
