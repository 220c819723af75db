"""Finds the source that reads a recipe's model file."""

from __future__ import annotations

from pathlib import Path

from repobuild.errors import Evidence, InputInvalid
from repobuild.plugins import SOURCES
from repobuild.recipe.types import Recipe
from repobuild.sources.interface import Source

AUTO = (None, "auto")
SUFFIXES = {".joblib": "joblib", ".pkl": "joblib", ".pickle": "joblib", ".pck": "joblib"}


def open_source(recipe: Recipe, folder: Path) -> Source:
    """Open the recipe's model file without running anything of it.

    Args:
        recipe: The recipe.
        folder: Existing private folder for the source.

    Raises:
        InputInvalid: The file is missing or of no known kind.
    """
    kind = recipe.source.kind
    if kind in AUTO:
        kind = SUFFIXES.get(recipe.source.path.suffix.lower())
        if kind is None:
            raise InputInvalid(
                "model-kind-unknown",
                f"the kind of {recipe.source.given} cannot be told from its name",
                (Evidence(f"known endings are {', '.join(SUFFIXES)}", file=recipe.source.given),),
                f"write source: {{kind: ...}} with one of {', '.join(SOURCES.names())}",
            )
    assert kind is not None
    opened: Source = SOURCES.load(kind)(recipe, folder)
    return opened
