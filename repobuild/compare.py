"""Compares two answers element by element, NaN and infinities as such."""

from __future__ import annotations

import math
from dataclasses import dataclass

from repobuild.recipe.types import Bounds
from repobuild.report import Deviation
from repobuild.tensors import Array


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of comparing one output over all rows.

    Attributes:
        total: Elements compared.
        wrong: Elements outside the bounds.
        worst: The wrong element that lies furthest off, else the largest deviation; ``None`` when all are
            equal.
        why: Why the arrays could not be compared at all (shape or kind); empty otherwise.
    """

    total: int
    wrong: int
    worst: Deviation | None
    why: str = ""

    @property
    def holds(self) -> bool:
        """Whether every element lies within the bounds."""
        return not self.why and self.wrong == 0


def as_rows(array: Array) -> Array:
    """The array with at least two axes: ``[rows]`` becomes ``[rows, 1]``, as it is emitted."""
    return array.reshape(-1, 1) if array.ndim == 1 else array


def magnitude(answer: Array) -> float:
    """The largest finite magnitude in a floating-point answer; 0 where there is none."""
    import numpy as np

    if answer.dtype.kind != "f":
        return 0.0
    wide = np.abs(answer.astype(np.float64))
    return float(wide[np.isfinite(wide)].max(initial=0.0))


def compare(output: str, got: Array, want: Array, bounds: Bounds) -> Comparison:
    """Compare answers of one output.

    Floating point passes when ``|got - want| <= atol + rtol * |want|`` (NumPy's ``isclose`` rule, with a
    scaled ``atol`` where :class:`~repobuild.recipe.types.Bounds` says so); NaN equals NaN and infinities of
    one sign are equal. Text must be equal, and so must everything that the artifact answers with whole
    numbers or booleans, whatever type the model itself uses for them.

    Args:
        output: Name, for the deviation.
        got: The artifact's answer, rows on axis 0.
        want: The model's answer, rows on axis 0.
        bounds: Tolerance for floating point.
    """
    import numpy as np

    got, want = as_rows(got), as_rows(want)
    if got.shape != want.shape:
        return Comparison(
            want.size, want.size, None, f"shape {list(got.shape)}, the model has {list(want.shape)}"
        )
    textual = [a.dtype.kind in "OUS" for a in (got, want)]
    if any(textual):
        if not all(textual):
            return Comparison(want.size, want.size, None, f"{got.dtype} values, the model has {want.dtype}")
        differ = got.astype(str) != want.astype(str)
        return _counted(
            output, got, want, differ, np.where(differ, np.inf, 0.0), np.where(differ, np.inf, 0.0)
        )
    if got.dtype.kind in "biu":
        differ = got != want
        distance = np.abs(got.astype(np.float64) - want.astype(np.float64))
        return _counted(output, got, want, differ, distance, _relative(distance, want.astype(np.float64)))
    left, right = got.astype(np.float64), want.astype(np.float64)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.where(same, 0.0, np.abs(left - right))
        distance[np.isnan(distance)] = np.inf
        size = np.where(np.isfinite(right), np.abs(right), 0.0)
        scale = max(1.0, float(size.max(initial=0.0)) / bounds.unit) if bounds.scaled else 1.0
        allowed = bounds.atol * scale + bounds.rtol * size
        differ = ~same & ~(distance <= allowed)
    return _counted(output, got, want, differ, distance, _relative(distance, right))


def _relative(distance: Array, want: Array) -> Array:
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        share: Array = np.where(distance == 0, 0.0, distance / np.abs(want))
    share[np.isnan(share)] = np.inf
    return share


def _counted(
    output: str, got: Array, want: Array, differ: Array, distance: Array, relative: Array
) -> Comparison:
    import numpy as np

    wrong = int(differ.sum())
    if not distance.size or not (wrong or distance.any()):
        return Comparison(int(want.size), wrong, None)
    ranked = np.where(differ, distance, -1.0) if wrong else distance
    row, *at = (int(i) for i in np.unravel_index(int(np.argmax(ranked)), distance.shape))
    place = (row, *at)
    worst = Deviation(
        output,
        row,
        tuple(at),
        _shown(got[place]),
        _shown(want[place]),
        float(distance[place]),
        float(relative[place]),
    )
    return Comparison(int(want.size), wrong, worst)


def _shown(value: object) -> str:
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, float):
        return f"{plain:.9g}" if math.isfinite(plain) else str(plain)
    return repr(plain)
