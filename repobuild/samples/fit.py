"""Fits a sample file to a model: the rows as the model is asked, and as a client sends them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from repobuild.errors import Evidence, InputInvalid
from repobuild.feeds import Feed, FeedColumn, Mode, missing_key
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.samples.table import Column, Kind, Table
from repobuild.tensors import Array, Batch, DType, TensorSpec, held_by_float32, rows

MIN_ROWS = 2


@dataclass(frozen=True, slots=True)
class Samples:
    """The user's rows.

    Attributes:
        given: Rows as the model itself is asked, in the types of the file (see :class:`Feed`).
        digest: sha256 of the file; empty when the rows were made up.
        notes: What was decided while they were read and fitted.
    """

    given: Batch
    digest: str
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of rows."""
        return rows(self.given)


class DoesNotFit(Exception):
    """Raised when rows cannot be sent in the types of the inputs.

    Attributes:
        problem: The error to show if there is no other choice of types.
    """

    def __init__(self, problem: InputInvalid) -> None:
        super().__init__(problem.message)
        self.problem = problem


def fit_samples(recipe: Recipe, table: Table, feed: Feed) -> Samples:
    """Bring a sample file into the form in which the model is asked.

    Raises:
        InputInvalid: Its arrays do not fit: names, widths, types, rows.
    """
    given, notes = _given(recipe, table, feed)
    try:
        count = rows(given)
    except ValueError as problem:
        raise _invalid(
            recipe, "the sample arrays differ in length", [str(problem)], "give each the same rows"
        ) from None
    if count < MIN_ROWS:
        raise _invalid(
            recipe,
            f"the samples hold {count} row{'s' if count != 1 else ''}, too few to check anything",
            [f"at least {MIN_ROWS} rows are needed; some hundred are better"],
            "save more rows, such as the first rows of the validation set",
        )
    if count > MIN_ROWS and _all_equal(given):
        notes.append("all sample rows are the same, so little was checked")
    return Samples(given, table.digest, (*table.notes, *notes))


def to_wire(recipe: Recipe, given: Batch, feed: Feed, floats: DType) -> dict[str, Array]:
    """The rows as a client sends them.

    Args:
        recipe: The recipe, for messages.
        given: Rows as the model is asked.
        feed: How it is fed.
        floats: FP32 or FP64, for the inputs whose type is open.

    Returns:
        ``{input: [rows, ...]}``; missing text is the empty string.

    Raises:
        DoesNotFit: A type does not hold the values.
    """
    import numpy as np

    inputs = feed.inputs(floats)
    if feed.mode is Mode.COLUMNS:
        return {
            spec.name: _cast(_one_column(given, column).reshape(-1, 1), spec, recipe)
            for spec, column in zip(inputs, feed.columns, strict=True)
        }
    if feed.mode is Mode.FRAME_MATRIX:
        wide = np.stack([np.asarray(given[c.name]).reshape(-1) for c in feed.columns], axis=1)
        return {feed.name: _cast(wide, inputs[0], recipe)}
    array = given[feed.name]
    return {feed.name: _cast(array.reshape(-1, 1) if array.ndim == 1 else array, inputs[0], recipe)}


def single_precision(given: Batch, recipe: Recipe) -> list[str]:
    """Arrays whose numbers a float32 holds exactly, or that the recipe says are float32."""
    said = {i.name for i in recipe.inputs if i.dtype is DType.FP32}
    every = len(recipe.inputs) == 1 and bool(said)
    return [
        name
        for name, array in given.items()
        if array.dtype.kind == "f" and (every or name in said or held_by_float32(array))
    ]


def _given(recipe: Recipe, table: Table, feed: Feed) -> tuple[dict[str, Array], list[str]]:
    if feed.mode in (Mode.COLUMNS, Mode.FRAME_MATRIX):
        return _columns(recipe, table, feed)
    if feed.columns:
        return _side_by_side(table, feed), []
    have = table.by_name
    if len(table.columns) > 1 and feed.name not in have:
        raise _invalid(
            recipe,
            "the samples do not have the model's inputs",
            [f"the model takes {feed.name}", f"the file holds {', '.join(have)}"],
            "save them with numpy.savez under the names of the inputs",
        )
    if len(table.columns) > 1:
        raise _invalid(
            recipe,
            "the samples hold more than the model takes",
            [f"the model takes {feed.name}", f"the file holds {', '.join(have)}"],
            "save the rows of that input only",
        )
    values = table.columns[0].values
    if feed.mode is Mode.DOCUMENTS:
        return {feed.name: _texts(values, table.columns[0], feed, recipe)}, []
    _fit(values, feed, recipe)
    return {feed.name: values}, []


def _columns(recipe: Recipe, table: Table, feed: Feed) -> tuple[dict[str, Array], list[str]]:
    import numpy as np

    have: Mapping[str, Column] = table.by_name
    if len(table.columns) == 1 and table.columns[0].name not in {c.name for c in feed.columns}:
        matrix = table.columns[0].values
        _fit_width(matrix, len(feed.columns), feed.name or "X", recipe)
        have = {
            c.name: Column(c.name, table.columns[0].kind, matrix[:, i]) for i, c in enumerate(feed.columns)
        }
    given: dict[str, Array] = {}
    notes: list[str] = []
    extra = [n for n in have if n not in {c.name for c in feed.columns}]
    if extra:
        notes.append(f"columns of the samples that the model does not take were left out: {', '.join(extra)}")
    for wanted in feed.columns:
        column = _of_kind(have[wanted.name], wanted, recipe)
        given[wanted.name] = column.values.reshape(-1)
        if column.missing is None and wanted.missing is None:
            continue
        missing = np.zeros(len(column.values), dtype=bool) if column.missing is None else column.missing
        given[missing_key(wanted.name)] = missing
        why = "takes missing values" if column.missing is None else "has missing values in the samples"
        notes.append(f"column '{wanted.name}' {why}; a client sends missing text as the empty string ''")
        if ((column.values == "") & ~missing).any():
            notes.append(f"column '{wanted.name}' also holds empty text, which cannot be told from missing")
    return given, notes


def _of_kind(column: Column, wanted: FeedColumn, recipe: Recipe) -> Column:
    try:
        if wanted.kind == "text":
            return column.as_text()
        if wanted.kind == "number" and column.kind is not Kind.NUMBER:
            return column.as_number()
    except ValueError as problem:
        raise _invalid(
            recipe, f"the samples do not fit column '{wanted.name}'", [str(problem)], "write it as trained"
        ) from None
    return column


def _side_by_side(table: Table, feed: Feed) -> dict[str, Array]:
    import numpy as np

    return {feed.name: np.stack([c.as_number().values.reshape(-1) for c in table.columns], axis=1)}


def _texts(values: Array, column: Column, feed: Feed, recipe: Recipe) -> Array:
    if column.kind is not Kind.TEXT or values.reshape(len(values), -1).shape[1] != 1:
        raise _invalid(
            recipe,
            f"the samples for input '{feed.name}' are {values.dtype} of shape {list(values.shape)}, the model"
            " takes one text a row",
            [f"NumPy type {values.dtype}"],
            "save the texts as a column, or as a NumPy array of str",
        )
    return values.reshape(-1)


def _one_column(given: Batch, column: FeedColumn) -> Array:
    import numpy as np

    values = np.asarray(given[column.name])
    mask = given.get(missing_key(column.name))
    return values if mask is None else np.where(np.asarray(mask), "", values)


def _fit_width(array: Array, width: int, name: str, recipe: Recipe) -> None:
    if array.ndim == 2 and array.shape[1] == width:
        return
    columns = f"{array.shape[1]} columns" if array.ndim == 2 else f"shape {list(array.shape)}"
    raise _invalid(
        recipe,
        f"the samples for input '{name}' have {columns}, the model takes rows x {width}",
        [f"shape of the samples is {list(array.shape)}"],
        "give the columns that the model was trained on, in the same order",
    )


def _fit(array: Array, feed: Feed, recipe: Recipe) -> None:
    _fit_width(array, feed.width, feed.name, recipe)
    textual = array.dtype.kind in "US"
    wants = feed.dtype
    if array.dtype.kind not in "USbiuf" or textual != (wants is DType.BYTES):
        raise _invalid(
            recipe,
            f"the samples for input '{feed.name}' are {array.dtype}, the input is"
            f" {wants.value if wants else 'FP32'}",
            [f"NumPy type {array.dtype}"],
            "save the samples in the type that the model was trained on",
        )


def _cast(array: Array, spec: TensorSpec, recipe: Recipe) -> Array:
    import numpy as np

    if spec.dtype is DType.BYTES:
        return array.astype(np.str_)
    if array.dtype.kind not in "biuf":
        raise DoesNotFit(_unfit(array, spec, recipe, f"{array.dtype} values are no {spec.dtype.value}"))
    with np.errstate(over="ignore", invalid="ignore"):
        cast: Array = array.astype(spec.dtype.numpy)
    overflow = spec.dtype.is_float and bool((np.isinf(cast) & np.isfinite(array.astype(np.float64))).any())
    if overflow or (not spec.dtype.is_float and not np.array_equal(cast, array)):
        raise DoesNotFit(
            _unfit(array, spec, recipe, f"casting {array.dtype} to {spec.dtype.value} changes values")
        )
    return cast


def _unfit(array: Array, spec: TensorSpec, recipe: Recipe, why: str) -> InputInvalid:
    return _invalid(
        recipe,
        f"the samples for input '{spec.name}' do not fit {spec.dtype.value}",
        [why],
        "choose a dtype for the input that holds them",
    )


def _all_equal(given: Batch) -> bool:
    return all(bool(((array == array[:1]) | (array != array)).all()) for array in given.values())


def _invalid(recipe: Recipe, message: str, lines: list[str], hint: str) -> InputInvalid:
    place = recipe_evidence(recipe, ("samples",), recipe.samples_given or "made up")
    return InputInvalid("samples-unfit", message, (*(Evidence(t) for t in lines), place), hint)
