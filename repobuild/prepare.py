"""What is decided before a model is loaded, and the rows it is then asked with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from repobuild.build import Order
from repobuild.emit.libraries import library_mistakes
from repobuild.errors import EnvironmentLacking, Evidence, InputInvalid, SourceUntrusted
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.refine import FULL
from repobuild.releases import Release, newest, release
from repobuild.samples.fit import Samples, fit_samples
from repobuild.samples.read import read_table
from repobuild.samples.table import Table
from repobuild.sources.interface import Description, RowsSource, Source
from repobuild.targets import refuse_unmakeable

MADE_UP_ROWS = 128
LIBRARY_ENDINGS = (".so", ".dll", ".dylib")
FOR_ALL = frozenset({"optimise"})
"""Options of the export section that every model takes."""


def target_release(recipe: Recipe) -> Release:
    """The Triton release that a recipe's model must load on.

    Raises:
        InputInvalid: The table does not have it.
    """
    if recipe.target is None:
        return newest()
    try:
        return release(recipe.target)
    except InputInvalid as problem:
        place = recipe_evidence(recipe, ("target", "triton"), recipe.target)
        raise InputInvalid(problem.code, problem.message, (*problem.evidence, place), problem.hint) from None


def refuse_early(order: Order) -> None:
    """Refuse what no model can mend.

    Raises:
        EnvironmentLacking: A target, or the wanted environment, cannot be had here.
        InputInvalid: An option does not apply.
        SourceUntrusted: A module would be imported that nobody vouches for.
    """
    recipe = order.recipe
    refuse_unmakeable(recipe)
    _refuse_misplaced(recipe)
    if recipe.source.environment is not None:
        raise EnvironmentLacking(
            "environment-unavailable",
            "the model cannot be converted in an environment of its own yet",
            (recipe_evidence(recipe, ("source", "environment"), "is given"),),
            "run repobuild itself in that environment (Python 3.11 or newer), without this key",
        )
    if recipe.source.custom_ops and "module" not in order.trust.kinds:
        raise SourceUntrusted(
            "source-untrusted",
            "custom_ops are code that would be loaded, and nobody vouched for it",
            (recipe_evidence(recipe, ("source", "custom_ops"), ", ".join(recipe.source.custom_ops)),),
            "if you trust them, pass --trust module",
        )


def refuse_inapplicable(recipe: Recipe, source: Source) -> None:
    """Refuse options that only sources of other frameworks know.

    Args:
        recipe: The recipe.
        source: The source; it need not be loaded.

    Raises:
        InputInvalid: An option would have no effect.
    """
    places: list[tuple[str, ...]] = []
    if source.takes == "rows":
        places.extend(("export", key) for key in recipe.export if key not in FOR_ALL)
        if recipe.source.module is not None:
            places.append(("source", "module"))
    elif recipe.source.method is not None:
        places.append(("source", "method"))
    if not _takes_custom_ops(source, recipe.source.custom_ops):
        places.append(("source", "custom_ops"))
    if places:
        whose = "a scikit-learn model" if source.takes == "rows" else "a model that takes tensors"
        raise InputInvalid(
            "option-unfit",
            f"{': '.join(places[0])} does not apply to {whose}",
            tuple(recipe_evidence(recipe, place, "is given") for place in places),
            "leave it out",
        )


def _takes_custom_ops(source: Source, names: Sequence[str]) -> bool:
    if source.takes_custom_ops == "modules":
        return not any(name.endswith(LIBRARY_ENDINGS) for name in names)
    return source.takes_custom_ops is not None or not names


def _refuse_misplaced(recipe: Recipe) -> None:
    """Make sure that the server is told of the libraries that the recipe has, and of no others.

    Raises:
        InputInvalid: Paths for the server do not fit the libraries, or there are none.
    """
    libraries = [Path(n).name for n in recipe.source.custom_ops if n.endswith(LIBRARY_ENDINGS)]
    operations = recipe.serving.get("model_operations")
    place = ("serving", "model_operations")
    if operations is not None and not libraries:
        raise InputInvalid(
            "serving-unfit",
            "model_operations names libraries of operators, and the recipe has none",
            (recipe_evidence(recipe, place, "source: custom_ops names no library"),),
            "name the libraries under source: custom_ops, so that they take part in the checks",
        )
    stated = (operations or {}).get("op_library_filename", [])
    wrong = list(library_mistakes(stated, libraries))
    if wrong:
        raise InputInvalid(
            "serving-unfit",
            "model_operations does not name the libraries that the recipe has",
            tuple(recipe_evidence(recipe, (*place, "op_library_filename", i), text) for i, text in wrong),
            "write one path on the server for each library, or one folder that ends in a slash",
        )
    precision = recipe.targets[0].options.get("precision", FULL)
    if libraries and precision != FULL:
        raise InputInvalid(
            "option-unfit",
            f"precision: {precision} does not apply to a graph with operators of libraries",
            (recipe_evidence(recipe, ("targets", 0), "what they do in other types nobody knows"),),
            "leave precision out",
        )


def load_model(recipe: Recipe, source: RowsSource) -> tuple[Description, Samples]:
    """Load the model, and read the rows that fit it.

    Without samples in the recipe, rows are made up in the range of what the model was trained on.

    Raises:
        RepobuildError: The model does not load, or the samples do not fit it.
    """
    table: Table | None = None
    if recipe.samples is not None:
        table = _read(recipe)
    model = source.describe(recipe, table.layout() if table else None)
    _refuse_names(model)
    if table is not None:
        return model, fit_samples(recipe, table, model.feed)
    if model.feed.dtype is not None and not model.feed.dtype.is_float:
        raise InputInvalid(
            "samples-needed",
            "the model takes no plain numbers, and only samples tell what it takes",
            (recipe_evidence(recipe, (), "samples: is missing"),),
            "name a file with some hundred real rows under samples:",
        )
    note = (
        f"no samples were given: {MADE_UP_ROWS} rows were made up, seeded, so the checks say little about"
        " real data; name a file of real rows under samples:"
    )
    return model, Samples(source.made_up(MADE_UP_ROWS), "", (note,))


def _refuse_names(model: Description) -> None:
    """Columns become tensor names, which clients write into requests and people into configurations."""
    for spec in model.inputs:
        if not spec.name.strip() or any(ord(c) < 32 or ord(c) == 127 for c in spec.name):
            raise InputInvalid(
                "tensor-name",
                "a column's name cannot be the name of a tensor: it is empty or holds control characters",
                (Evidence(f"the name is {spec.name!r}"),),
                "rename the column, and train the model with the new name",
            )


def _read(recipe: Recipe) -> Table:
    assert recipe.samples is not None
    try:
        return read_table(recipe.samples, recipe.samples_given)
    except InputInvalid as problem:
        place = recipe_evidence(recipe, ("samples",), recipe.samples_given)
        raise InputInvalid(problem.code, problem.message, (*problem.evidence, place), problem.hint) from None
