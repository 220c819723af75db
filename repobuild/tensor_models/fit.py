"""Fits a sample file to a model that takes named tensors: one array an input, in the types of the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from repobuild.errors import Evidence, InputInvalid
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.samples.table import Column, Table
from repobuild.sources.interface import TensorArgument, TensorDescription
from repobuild.tensors import Array, Batch, DType


@dataclass(frozen=True, slots=True)
class TensorSamples:
    """The user's samples.

    Attributes:
        given: One array an input, in the shapes that the model takes.
        count: Number of rows, 1 where no axis holds rows.
        digest: sha256 of the file.
        notes: What was decided while they were read and fitted.
        first: The model's answers to them in the first call that it did not refuse, where that is known.
    """

    given: Mapping[str, Array]
    count: int
    digest: str
    notes: tuple[str, ...] = ()
    first: Batch = field(default_factory=dict)


def fit_tensors(recipe: Recipe, table: Table, model: TensorDescription) -> tuple[dict[str, Array], list[str]]:
    """One array an input, in its wire type where file or recipe fix that, and what was decided.

    Raises:
        InputInvalid: An array does not fit: type, rank, a fixed size, or nothing in it.
    """
    found: dict[str, Array] = {}
    notes: list[str] = []
    columns = table.by_name
    asked = {i.name: i for i in recipe.inputs}
    for name in asked:
        if name not in {a.name for a in model.arguments}:
            known = ", ".join(a.name for a in model.arguments)
            raise InputInvalid(
                "input-unknown",
                f"the model has no input '{name}'",
                (recipe_evidence(recipe, ("inputs",), f"{model.model} takes {known}"),),
                "inputs: names inputs of the model, to fix their types or dims",
            )
    for argument in model.arguments:
        array = _values(columns[argument.sample], argument, recipe)
        item = asked.get(argument.name)
        wanted = argument.dtype or (item.dtype if item else None)
        if item is not None and item.dtype is not None and wanted is not item.dtype:
            raise _unfit(
                recipe,
                f"input '{argument.name}' is {wanted.value if wanted else 'open'}, and the recipe says"
                f" {item.dtype.value}",
                [f"{model.model} fixes the type"],
                "leave dtype out",
            )
        found[argument.name] = _typed(array, wanted, argument, recipe, notes)
        _shaped(found[argument.name], argument, recipe)
        if item is not None and item.dims is not None:
            _dims(found[argument.name], item.dims, argument.name, recipe)
    return found, notes


def _values(column: Column, argument: TensorArgument, recipe: Recipe) -> Array:
    if column.values.dtype.kind not in "biufUS":
        raise _unfit(
            recipe,
            f"the samples for input '{argument.name}' are {column.values.dtype}, which no tensor holds",
            [f"array '{column.name}' has NumPy type {column.values.dtype}"],
            "save plain numbers, booleans or text",
        )
    if column.values.ndim and not column.values.size:
        raise _unfit(
            recipe,
            f"the samples for input '{argument.name}' are empty: an axis has size 0 (zero)",
            [f"array '{column.name}' has shape {list(column.values.shape)}"],
            "save real rows; Triton carries no tensors without elements of a fixed shape",
        )
    return column.values


def _typed(
    array: Array, wanted: DType | None, argument: TensorArgument, recipe: Recipe, notes: list[str]
) -> Array:
    """The values in the wire type, if it holds them; float64 may become any float type, with a note."""
    import numpy as np

    if wanted is None:
        try:
            DType.of(array.dtype)
        except ValueError as problem:
            raise _unfit(
                recipe,
                f"the samples for input '{argument.name}' cannot be sent",
                [str(problem)],
                "use another type",
            ) from None
        return array
    if wanted is DType.BYTES or array.dtype.kind in "US":
        if wanted is DType.BYTES and array.dtype.kind in "US":
            return array.astype(np.str_)
        raise _mistyped(array, wanted, argument, recipe)
    if np.dtype(wanted.numpy) == array.dtype:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        cast: Array = array.astype(wanted.numpy)
    if wanted.is_float and array.dtype.kind == "f":
        lost = bool((np.isinf(cast) & np.isfinite(array)).any())
    else:
        lost = not np.array_equal(cast, array)
    if lost or (array.dtype.kind == "f" and not wanted.is_float):
        raise _mistyped(array, wanted, argument, recipe)
    notes.append(f"the samples for '{argument.name}' are {array.dtype}; they are sent as {wanted.value}")
    return cast


def _mistyped(array: Array, wanted: DType, argument: TensorArgument, recipe: Recipe) -> InputInvalid:
    return _unfit(
        recipe,
        f"the samples for input '{argument.name}' are {array.dtype}, the input is {wanted.value}",
        [f"{array.dtype} values cannot all be sent as {wanted.value}"],
        "save them in the type that the model takes",
    )


def _shaped(array: Array, argument: TensorArgument, recipe: Recipe) -> None:
    """Hold the array against fixed axes, and against the bounds of free ones."""
    if not argument.shape and array.ndim and argument.dtype is None:
        return
    if len(argument.shape) != array.ndim:
        raise _unfit(
            recipe,
            f"the samples for input '{argument.name}' have {array.ndim} axes, and the model takes"
            f" {len(argument.shape)}",
            [f"shape of the samples is {list(array.shape)}, of the input {_shown(argument)}"],
            "save whole batches: the first axis holds the rows",
        )
    for axis, (size, want) in enumerate(zip(array.shape, argument.shape, strict=True)):
        if isinstance(want, int) and size != want:
            raise _unfit(
                recipe,
                f"axis {axis} of the samples for input '{argument.name}' has size {size}, and the model takes"
                f" {want}",
                [f"shape of the samples is {list(array.shape)}, of the input {_shown(argument)}"],
                "save samples in the shape that the model takes",
            )
        low, high = argument.bounds.get(want, (0, None)) if isinstance(want, str) else (0, None)
        if size < low or (high is not None and size > high):
            raise _unfit(
                recipe,
                f"axis {axis} of the samples for input '{argument.name}' has size {size}, outside its bounds",
                [f"the model takes {low} to {high if high is not None else 'any'}"],
                "save samples that the model takes",
            )


def _shown(argument: TensorArgument) -> str:
    return "[" + ", ".join("any" if s is None else str(s) for s in argument.shape) + "]"


def _dims(array: Array, dims: tuple[int, ...], name: str, recipe: Recipe) -> None:
    if tuple(array.shape[1:]) != dims:
        raise _unfit(
            recipe,
            f"the samples for input '{name}' have dims {list(array.shape[1:])}, the recipe says {list(dims)}",
            [f"shape of the samples is {list(array.shape)}"],
            "leave dims out, or save other samples",
        )


def _unfit(recipe: Recipe, message: str, lines: list[str], hint: str) -> InputInvalid:
    place = recipe_evidence(recipe, ("samples",), recipe.samples_given)
    return InputInvalid("samples-unfit", message, (*(Evidence(t) for t in lines), place), hint)
