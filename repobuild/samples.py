"""Real input rows from a file: what checks, warm-up and golden answers are made of."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repobuild.artifact import file_digest
from repobuild.errors import Evidence, InputInvalid, from_oserror
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.tensors import Array, Batch, DType, TensorSpec, rows

if TYPE_CHECKING:
    from pathlib import Path

MIN_ROWS = 2
FORMATS = ".npy (one array) or .npz (one array an input)"


@dataclass(frozen=True, slots=True)
class Samples:
    """The user's rows.

    Attributes:
        given: Rows in the types of the file, as the model itself is asked.
        wire: The same rows in the types of the inputs, as a client sends them.
        digest: sha256 of the file.
    """

    given: Batch
    wire: Batch
    digest: str

    @property
    def count(self) -> int:
        """Number of rows."""
        return rows(self.wire)


def read_samples(recipe: Recipe, inputs: tuple[TensorSpec, ...]) -> Samples:
    """Read the recipe's sample file and fit it to the model's inputs.

    Args:
        recipe: The recipe.
        inputs: The model's inputs, axis 0 free.

    Raises:
        InputInvalid: The file is missing or unreadable, or its arrays do not fit: names, widths, types, rows.
        EnvironmentLacking: It cannot be read.
    """
    arrays = _read(recipe.samples, recipe)
    if len(arrays) == 1 and len(inputs) == 1:
        arrays = {inputs[0].name: next(iter(arrays.values()))}
    missing = [i.name for i in inputs if i.name not in arrays]
    extra = [name for name in arrays if name not in {i.name for i in inputs}]
    if missing or extra:
        raise _invalid(
            recipe,
            "the samples do not have the model's inputs",
            [f"the model takes {', '.join(i.name for i in inputs)}", f"the file holds {', '.join(arrays)}"],
            "save them with numpy.savez under the names of the inputs",
        )
    for spec in inputs:
        _fit(arrays[spec.name], spec, recipe)
    given = {spec.name: arrays[spec.name] for spec in inputs}
    try:
        count = rows(given)
    except ValueError as problem:
        raise _invalid(
            recipe, "the sample arrays differ in length", [str(problem)], "give each the same rows"
        ) from None
    if count < MIN_ROWS:
        raise _invalid(
            recipe,
            f"the samples hold {count} row, too few to check anything",
            [f"at least {MIN_ROWS} rows are needed; some hundred are better"],
            "save more rows, such as the first rows of the validation set",
        )
    wire = {spec.name: _cast(given[spec.name], spec, recipe) for spec in inputs}
    return Samples(given, wire, file_digest(recipe.samples))


def _read(path: Path, recipe: Recipe) -> dict[str, Array]:
    import numpy as np

    if path.suffix not in (".npy", ".npz"):
        raise _invalid(
            recipe,
            f"samples in a {path.suffix or 'nameless'} file cannot be read",
            [f"{recipe.samples_given} is neither {FORMATS}"],
            "save them with numpy.save or numpy.savez",
        )
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"samples": loaded}
        with loaded as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise _invalid(
            recipe,
            f"there is no sample file {recipe.samples_given}",
            ["no such file"],
            "paths in a recipe are relative to the recipe's own folder",
        ) from None
    except (ValueError, EOFError, MemoryError, zipfile.BadZipFile) as problem:
        raise _invalid(
            recipe,
            f"{recipe.samples_given} is not a readable {path.suffix} file",
            [f"{type(problem).__name__}: {problem}"],
            "it must hold plain numbers or text; arrays of Python objects are pickles, and refused",
        ) from None
    except OSError as problem:
        raise from_oserror(problem, "reading the samples") from problem


def _fit(array: Array, spec: TensorSpec, recipe: Recipe) -> None:
    if array.ndim != len(spec.shape) or any(
        want is not None and have != want for have, want in zip(array.shape[1:], spec.shape[1:], strict=True)
    ):
        want = " x ".join(["rows", *(str(d) for d in spec.shape[1:])])
        columns = f"{array.shape[1]} columns" if array.ndim == 2 else f"shape {list(array.shape)}"
        raise _invalid(
            recipe,
            f"the samples for input '{spec.name}' have {columns}, the model takes {want}",
            [f"shape of the samples is {list(array.shape)}"],
            "give the columns that the model was trained on, in the same order",
        )
    textual = array.dtype.kind in "US"
    if textual != (spec.dtype is DType.BYTES) or array.dtype.kind not in "USbiuf":
        raise _invalid(
            recipe,
            f"the samples for input '{spec.name}' are {array.dtype}, the input is {spec.dtype.value}",
            [f"NumPy type {array.dtype}"],
            "save the samples in the type that the model was trained on",
        )


def _cast(array: Array, spec: TensorSpec, recipe: Recipe) -> Array:
    import numpy as np

    if spec.dtype is DType.BYTES:
        return array.astype(np.str_)
    with np.errstate(over="ignore", invalid="ignore"):
        cast: Array = array.astype(spec.dtype.numpy)
    overflow = spec.dtype.is_float and bool((np.isinf(cast) & np.isfinite(array.astype(np.float64))).any())
    if overflow or (not spec.dtype.is_float and not np.array_equal(cast, array)):
        raise _invalid(
            recipe,
            f"the samples for input '{spec.name}' do not fit {spec.dtype.value}",
            [f"casting {array.dtype} to {spec.dtype.value} changes values"],
            "choose a dtype for the input that holds them",
        )
    return cast


def _invalid(recipe: Recipe, message: str, lines: list[str], hint: str) -> InputInvalid:
    place = recipe_evidence(recipe, ("samples",), f"samples: {recipe.samples_given}")
    return InputInvalid("samples-unfit", message, (*(Evidence(t) for t in lines), place), hint)
