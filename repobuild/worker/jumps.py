"""Finds rows close to where a model's answer jumps, such as thresholds of trees, whatever comes before them.

Between two samples that differ in one number the model is asked at the middle, and the half with the larger
change is kept (bisection), until the two ends are neighbours. A smooth answer has no change left then; a tree
has. Rows a hair to both sides of the jump tell whether a lower precision moves rows across.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from repobuild.tensors import Array, Batch, rows, take

PLACES = 32
"""Jumps that are looked for, over all numeric columns."""
SEED = 20240229
HAIR = 1e-9
"""Distance from the jump relative to the number: far above float64's rounding, far below float32's."""
STEP = 1e-4
"""Distance relative to the larger of the two samples' numbers that the jump was found between.

It is far above the rounding of either type, also for a jump at zero, so the answers must be equal whatever
the precision, and a graph that puts a jump elsewhere shows itself.
"""
LEAST_JUMP = 1e-3
"""A change at the jump that counts, relative to the range of the answer over the samples."""
MOST_STEPS = 80
REFUSALS = (ValueError, TypeError, KeyError, IndexError)
"""What estimators raise for rows that they do not take."""


def find_jumps(ask: Callable[[Batch], Array], batch: Batch, single: frozenset[str]) -> dict[str, Array]:
    """Rows on both sides of jumps of an answer.

    Args:
        ask: The model's numeric answer to rows.
        batch: Sample rows, as the model is asked.
        single: Names of arrays whose numbers only ever are float32, so that their neighbours are as well.

    Returns:
        Rows in the same form, four a jump: all those at :data:`HAIR` first, then as many at :data:`STEP`;
        empty when there are none.
    """
    import numpy as np

    places = _places(batch)
    count = len(next(iter(batch.values())))
    if not places or count < 2:
        return {}
    ask = _leniently(ask)
    answers = _flat(ask(batch))
    span = float(np.nanmax(answers) - np.nanmin(answers)) if np.isfinite(answers).any() else 0.0
    least = max(LEAST_JUMP * span, np.finfo(np.float64).tiny)
    rng = np.random.default_rng(SEED)
    picks = [places[int(i)] for i in rng.permutation(np.resize(np.arange(len(places)), PLACES))]
    base, other = rng.integers(0, count, PLACES), rng.integers(0, count, PLACES)
    low = np.array([_get(batch, p, r) for p, r in zip(picks, base, strict=True)])
    high = np.array([_get(batch, p, r) for p, r in zip(picks, other, strict=True)])
    narrow = np.array([p[0] in single for p in picks])
    live = np.isfinite(low) & np.isfinite(high) & (low != high)
    low, high = np.minimum(low, high), np.maximum(low, high)
    step = STEP * np.maximum(np.abs(low), np.abs(high))
    left, right = _at(ask, batch, picks, base, low), _at(ask, batch, picks, base, high)
    for _ in range(MOST_STEPS):
        live &= _change(left, right) > least
        middle = low / 2 + high / 2
        middle[narrow] = middle[narrow].astype(np.float32)
        done = (middle <= low) | (middle >= high)
        go = live & ~done
        if not go.any():
            break
        between = _at(ask, batch, picks, base, np.where(go, middle, low))
        to_left = _change(left, between) >= _change(between, right)
        move_high, move_low = go & to_left, go & ~to_left
        high[move_high], right[move_high] = middle[move_high], between[move_high]
        low[move_low], left[move_low] = middle[move_low], between[move_low]
    live &= _change(left, right) > least
    if not live.any():
        return {}
    chosen = np.flatnonzero(live)
    low, high, step, narrow = low[chosen], high[chosen], step[chosen], narrow[chosen]
    hair = np.where(narrow, 0.0, HAIR * np.maximum(np.abs(low), np.abs(high)))
    values = np.concatenate([low - hair, high + hair, low - step, high + step])
    on_grid = np.tile(narrow, 4)
    values[on_grid] = values[on_grid].astype(np.float32)
    picks = [picks[int(i)] for i in chosen] * 4
    return dict(_rows(batch, picks, np.concatenate([base[chosen]] * 4), values))


def _leniently(ask: Callable[[Batch], Array]) -> Callable[[Batch], Array]:
    """The same answers, with NaN for rows that the model refuses, such as those far from what it knows."""
    import numpy as np

    def answer(batch: Batch) -> Array:
        try:
            return ask(batch)
        except REFUSALS:
            found: dict[int, Array] = {}
            count = rows(batch)
            for index in range(count):
                with suppress(*REFUSALS):
                    found[index] = _flat(ask(take(batch, index, index + 1)))
            width = max((f.shape[1] for f in found.values()), default=1)
            refused = np.full((1, width), np.nan)
            return np.concatenate([found.get(i, refused) for i in range(count)])

    return answer


def _places(batch: Batch) -> list[tuple[str, int]]:
    """Every number of a row: the array's name and the position in the flattened row."""
    return [
        (name, i)
        for name, array in batch.items()
        if array.dtype.kind == "f" and array.size
        for i in range(array[0].size)
    ]


def _get(batch: Batch, place: tuple[str, int], row: Any) -> float:
    return float(batch[place[0]][int(row)].reshape(-1)[place[1]])


def _rows(batch: Batch, picks: list[tuple[str, int]], base: Array, values: Array) -> Batch:
    """Copies of the base rows, each with one number replaced."""
    import numpy as np

    made = {name: np.array(array[base]) for name, array in batch.items()}
    for index, ((name, position), value) in enumerate(zip(picks, values, strict=True)):
        made[name][index].reshape(-1)[position : position + 1] = value
        if made[name].ndim == 1:
            made[name][index] = value
    return made


def _at(
    ask: Callable[[Batch], Array], batch: Batch, picks: list[tuple[str, int]], base: Array, values: Array
) -> Array:
    return _flat(ask(_rows(batch, picks, base, values)))


def _flat(answer: Array) -> Array:
    import numpy as np

    return np.array(answer, dtype=np.float64).reshape(len(answer), -1)  # pandas' own are read-only


def _change(left: Array, right: Array) -> Array:
    import numpy as np

    with np.errstate(invalid="ignore"):
        change: Array = np.abs(left - right).max(axis=1)
    return np.where(np.isnan(change), 0.0, change)
