"""What is decided before a model is loaded, and the rows it is then asked with."""

from __future__ import annotations

from repobuild.build import Order
from repobuild.errors import EnvironmentLacking, Evidence, InputInvalid, SourceUntrusted
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.releases import Release, newest, release
from repobuild.samples.fit import Samples, fit_samples
from repobuild.samples.read import read_table
from repobuild.samples.table import Table
from repobuild.sources.interface import Description, RowsSource
from repobuild.targets import refuse_unmakeable

MADE_UP_ROWS = 128
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
            "custom_ops import Python modules, and nobody vouched for them",
            (recipe_evidence(recipe, ("source", "custom_ops"), ", ".join(recipe.source.custom_ops)),),
            "if you trust them, pass --trust module",
        )


def refuse_inapplicable(recipe: Recipe, takes: str) -> None:
    """Refuse options that only sources of other frameworks know.

    Args:
        recipe: The recipe.
        takes: What the model takes, ``rows`` or ``tensors``.

    Raises:
        InputInvalid: An option would have no effect.
    """
    places: list[tuple[str, ...]] = []
    if takes == "rows":
        places.extend(("export", key) for key in recipe.export if key not in FOR_ALL)
        if recipe.source.module is not None:
            places.append(("source", "module"))
    elif recipe.source.method is not None:
        places.append(("source", "method"))
    if places:
        whose = "a scikit-learn model" if takes == "rows" else "a model that takes tensors"
        raise InputInvalid(
            "option-unfit",
            f"{': '.join(places[0])} does not apply to {whose}",
            tuple(recipe_evidence(recipe, place, "is given") for place in places),
            "leave it out",
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
