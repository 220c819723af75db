"""The recipe format as JSON Schema, for editors and CI; made from the models that check recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TITLE = "repobuild recipe"


def recipe_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a recipe file.

    It accepts every recipe that :func:`repobuild.recipe.load.load_recipe` accepts, and refuses unknown keys,
    wrong types and missing keys; rules that need the model or several keys together are not in it.
    """
    from repobuild.recipe.ensemble_schema import EnsembleDocument
    from repobuild.recipe.schema import RecipeDocument
    from repobuild.serving import OWNED
    from repobuild.triton import model_config

    one = _made(RecipeDocument)
    one["properties"]["serving"]["propertyNames"] = {
        "enum": [f.name for f in model_config().DESCRIPTOR.fields if f.name not in OWNED]
    }
    several = _made(EnsembleDocument)
    sections = {**several.pop("$defs"), **one.pop("$defs")}
    return {
        "$schema": DIALECT,
        "title": TITLE,
        "description": f"{one['description']} {several['description']}",
        "type": "object",
        "if": {"required": ["ensemble"]},
        "then": several,
        "else": one,
        "$defs": sections,
    }


def _made(document: type[BaseModel]) -> dict[str, Any]:
    """The schema of one form of recipes, with what pydantic leaves out."""
    from repobuild.recipe.schema import MODEL_NAME

    made = document.model_json_schema(by_alias=True, mode="validation")
    properties = made["properties"]
    properties["name"] |= {"pattern": f"^{MODEL_NAME.pattern}$", "minLength": 1, "maxLength": 128}
    for section in made["$defs"].values():
        for key, schema in section.get("properties", {}).items():
            _tighten(key, schema)
    for held in (properties, *(section.get("properties", {}) for section in made["$defs"].values())):
        for key, schema in held.items():
            schema.setdefault("title", key.capitalize())
            schema.setdefault("description", _described(schema, made["$defs"], key))
    return made


def _tighten(key: str, schema: dict[str, Any]) -> None:
    """Rules that pydantic checks in functions, which its schema does not show."""
    rules = {"sha256": {"pattern": "^[0-9a-fA-F]{64}$"}, "atol": {"minimum": 0}, "rtol": {"minimum": 0}}
    for option in schema.get("anyOf", [schema]):
        if option.get("type") in ("string", "number"):
            option.update(rules.get(key, {}))


def _described(schema: dict[str, Any], sections: dict[str, Any], key: str) -> str:
    """The description of the section that a key holds, or holds a list of."""
    inner = [schema, *schema.get("anyOf", ()), schema.get("items", {})]
    named = next((s["$ref"].rpartition("/")[2] for s in inner if "$ref" in s), None)
    text: str = sections[named].get("description", "") if named else ""
    return text or f"The key {key}."
