"""Finds the source that reads a recipe's model file, by the file's content."""

from __future__ import annotations

from pathlib import Path

from repobuild.errors import InputInvalid, from_oserror
from repobuild.plugins import KNOWN_SOURCES, SOURCES
from repobuild.recipe.tensorflow import refuse_saved_model
from repobuild.recipe.types import Recipe
from repobuild.sources.containers import read_head, refuse_strangers
from repobuild.sources.content import Content, content_of
from repobuild.sources.interface import Source
from repobuild.sources.model_file import kind_mismatch
from repobuild.sources.unsupported import UnsupportedSource

ANY = (None, "auto")
SKLEARN = "sklearn"
PYTHON = ".py"
SKLEARN_KINDS = frozenset({"pickle", "skops"})
SUFFIXES = frozenset({".joblib", ".pkl", ".pickle", ".pck", ".sav", ".gz", ".z", ".bz2", ".xz", ".lzma"})
"""Endings of files that people write with joblib and pickle; only decides what is said of other content."""


def open_source(recipe: Recipe, folder: Path) -> Source:
    """Open the recipe's model file without running anything of it.

    Args:
        recipe: The recipe.
        folder: Existing private folder for the source.

    Raises:
        InputInvalid: The file is missing or of no known kind.
        ConversionFailed: It is the folder of a TensorFlow model.
        EnvironmentLacking: It cannot be read.
    """
    refuse_saved_model(recipe.source.path, recipe.source.given)
    kind = recipe.source.kind
    if recipe.source.path.suffix.lower() == PYTHON and kind in (*ANY, "torch"):
        return _load("torch-factory", recipe, folder)
    if kind is not None and kind not in (*ANY, SKLEARN) and SOURCES.find(kind) is not None:
        return _load(kind, recipe, folder)
    content = _look(recipe)
    if kind in KNOWN_SOURCES and content.kind != kind:
        raise kind_mismatch(recipe.source.given, content, kind)
    if content.kind == "safetensors" and kind in ANY:
        return _load("torch", recipe, folder)
    if content.kind in SKLEARN_KINDS:
        return _load("joblib" if content.kind == "pickle" else content.kind, recipe, folder)
    if content.kind != "unknown":
        found = kind in ANY and SOURCES.find(content.kind) is not None
        return _load(content.kind, recipe, folder) if found else _unsupported(recipe, folder)
    try:  # pickles of protocols 0 and 1 have no first bytes of their own
        return _load("joblib", recipe, folder)
    except InputInvalid as problem:
        if problem.code != "model-not-pickle" or recipe.source.path.suffix.lower() in SUFFIXES:
            raise
        raise InputInvalid(
            "model-kind-unknown",
            f"neither content nor name of {recipe.source.given} tell what kind of model it is",
            problem.evidence,
            f"models are read from files of these kinds: {', '.join(SOURCES.names())}",
        ) from None


def _load(kind: str, recipe: Recipe, folder: Path) -> Source:
    opened: Source = SOURCES.load(kind)(recipe, folder)
    return opened


def _unsupported(recipe: Recipe, folder: Path) -> Source:
    return UnsupportedSource(recipe, folder)


def _look(recipe: Recipe) -> Content:
    """What the file holds now; the source looks again at its private copy."""
    given = recipe.source.given
    refuse_strangers(read_head(recipe.source.path, given), given)
    try:
        return content_of(recipe.source.path)
    except OSError as problem:
        raise from_oserror(problem, "reading the model file") from problem
