"""``repobuild schema``: the recipe format for editors."""

from __future__ import annotations

import json

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema (draft 2020-12) of recipes.

    With the YAML language server, a recipe that begins with the line
    "# yaml-language-server: $schema=recipe.schema.json" is completed and checked while it is written.
    """
    from repobuild.recipe.jsonschema import recipe_schema

    click.echo(json.dumps(recipe_schema(), indent=1, ensure_ascii=False))
