"""The samples of an ensemble: requests to the whole, and the answers that the user expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from repobuild.checks import spread
from repobuild.ensembles.interface import Tensor
from repobuild.errors import Evidence, InputInvalid
from repobuild.recipe.ensemble_types import PythonStep
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.samples.read import read_table
from repobuild.samples.table import Table
from repobuild.tensors import Array, Batch, DType, TensorSpec, rows, take

ALONE_ROWS = 16
PIECES = 8


def read_requests(recipe: Recipe, *, batched: bool) -> tuple[dict[str, Tensor], Table]:
    """The inputs of an ensemble with what the samples hold for them.

    Numbers are brought to the type that a python step declares where they stay what they are; what only
    models take is left as it is.

    Raises:
        InputInvalid: The samples do not have the inputs, or not in their types.
    """
    assert recipe.ensemble is not None
    assert recipe.samples is not None
    names = recipe.ensemble.inputs
    try:
        table = read_table(recipe.samples, recipe.samples_given)
    except InputInvalid as problem:
        place = recipe_evidence(recipe, ("samples",), recipe.samples_given)
        raise InputInvalid(problem.code, problem.message, (*problem.evidence, place), problem.hint) from None
    columns = table.by_name
    if len(names) == len(columns) == 1 and names[0] not in columns:
        columns = {names[0]: table.columns[0]}
    absent = [n for n in names if n not in columns]
    if absent:
        raise _unfit(
            recipe,
            f"the samples have no array for the input{'s' if len(absent) > 1 else ''} {', '.join(absent)}",
            f"they hold {', '.join(columns)}",
        )
    declared = _declared(recipe, batched=batched)
    arrays = {n: _fitted(recipe, n, columns[n].values, declared.get(n), batched=batched) for n in names}
    if batched:
        try:
            count = rows(arrays)
        except ValueError as problem:
            raise _unfit(recipe, "the sample arrays differ in length", str(problem)) from None
        if count == 0:
            raise _unfit(recipe, "the samples hold no rows", "give some hundred")
    return {n: Tensor(None, "the client", a) for n, a in arrays.items()}, table


def read_expected(recipe: Recipe, reference: Batch) -> dict[str, Array]:
    """The user's own answers, in the shapes of the reference.

    Raises:
        InputInvalid: The file names something that is no output, or has other rows.
    """
    assert recipe.ensemble is not None
    assert recipe.ensemble.expected is not None
    table = read_table(recipe.ensemble.expected, recipe.ensemble.expected_given)
    columns = table.by_name
    if len(reference) == len(columns) == 1 and not table.named:
        columns = {next(iter(reference)): table.columns[0]}
    found = {}
    for name, column in columns.items():
        if name not in reference:
            raise _expected(recipe, f"'{name}' is no output", f"outputs are {', '.join(reference)}")
        want, values = reference[name], column.values
        if values.size == want.size and values.shape[:1] == want.shape[:1]:
            values = values.reshape(want.shape)
        if values.shape != want.shape:
            raise _expected(
                recipe,
                f"'{name}' has other rows or dims than the ensemble answers with",
                f"it has shape {list(values.shape)}, the ensemble answers with {list(want.shape)}",
            )
        found[name] = values
    return found


def pieces(batch: Batch, largest: int) -> list[Batch]:
    """Some requests of at most so many rows, which a server takes; the whole without a batch dimension.

    Args:
        batch: The samples.
        largest: max_batch_size; 0 without a batch dimension.
    """
    if not largest:
        return [batch]
    count = rows(batch)
    size = min(largest, count)
    starts = [min(size * i, count - size) for i in range(-(-count // size))]
    return [take(batch, starts[i], starts[i] + size) for i in spread(len(starts), PIECES)]


def alone(batch: Batch, largest: int) -> tuple[tuple[int, ...], list[Batch]]:
    """Some rows as requests of their own; none without a batch dimension."""
    chosen = spread(rows(batch), ALONE_ROWS) if largest else ()
    return chosen, [take(batch, i, i + 1) for i in chosen]


def _declared(recipe: Recipe, *, batched: bool) -> Mapping[str, TensorSpec]:
    assert recipe.ensemble is not None
    found: dict[str, TensorSpec] = {}
    for step in recipe.ensemble.steps:
        if isinstance(step, PythonStep):
            for item in step.inputs:
                found.setdefault(step.input_map[item.name], item.spec(batched=batched))
    return found


def _fitted(recipe: Recipe, name: str, array: Array, spec: TensorSpec | None, *, batched: bool) -> Array:
    import numpy as np

    lowest = 2 if batched else 1
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind == "O":
        raise _unfit(recipe, f"the samples of '{name}' are neither text nor numbers", str(array.dtype))
    if spec is None:
        return array.reshape(*array.shape, *[1] * (lowest - array.ndim))
    missing = len(spec.shape) - array.ndim
    if missing > 0 and all(d in (1, None) for d in spec.shape[array.ndim :]):
        array = array.reshape(*array.shape, *[1] * missing)
    if (spec.dtype is DType.BYTES) != (array.dtype.kind == "U"):
        raise _unfit(
            recipe,
            f"the samples of '{name}' are {'text' if array.dtype.kind == 'U' else array.dtype}",
            f"the step that takes it declares {spec.dtype.value}",
        )
    if spec.dtype is DType.BYTES or array.dtype.name == spec.dtype.numpy:
        return array
    with np.errstate(all="ignore"):
        cast = array.astype(spec.dtype.numpy)
        same = np.array_equal(cast.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")
    if not same and not (spec.dtype.is_float and array.dtype.kind == "f"):
        raise _unfit(
            recipe,
            f"the samples of '{name}' do not fit in {spec.dtype.value}",
            f"they are {array.dtype}, and some would change",
        )
    return cast


def _unfit(recipe: Recipe, message: str, *lines: str) -> InputInvalid:
    return InputInvalid(
        "samples-unfit",
        message,
        (
            *(Evidence(line) for line in lines if line),
            recipe_evidence(recipe, ("samples",), recipe.samples_given),
        ),
        "save one array an input, rows first, with numpy.savez under the names of the ensemble's inputs",
    )


def _expected(recipe: Recipe, message: str, text: str) -> InputInvalid:
    assert recipe.ensemble is not None
    return InputInvalid(
        "expected-unfit",
        f"expected: {message}",
        (Evidence(text), recipe_evidence(recipe, ("expected",), recipe.ensemble.expected_given)),
        "save one array an output with numpy.savez, a row for each sample",
    )


def nan_note(name: str, array: Array, batched: bool) -> Sequence[str]:
    """A note on NaN in an answer."""
    import numpy as np

    if array.dtype.kind != "f" or not np.isnan(array).any():
        return ()
    if not batched:
        return (f"output '{name}' holds NaN",)
    row = int(np.flatnonzero(np.isnan(array).reshape(len(array), -1).any(axis=1))[0])
    return (f"output '{name}' holds NaN, first for sample row {row}",)
