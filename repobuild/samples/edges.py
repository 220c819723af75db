"""Edge rows: rows that real data will hold one day and the samples may not, made from the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from repobuild.feeds import Feed, FeedColumn, Mode, missing_key
from repobuild.samples.texts import text_forms
from repobuild.tensors import Array, Batch, DType, held_by_float32

MOST_COLUMNS = 48
"""Columns that get rows of their own, spread evenly over all."""
UNSEEN = "an unseen category"
THRESHOLD = "threshold"
"""Kind of the rows a hair from where the answer jumps, which not every precision tells apart."""
BESIDE = "beside a threshold"
"""Kind of the rows a step from there, which every precision does."""


@dataclass(frozen=True, slots=True)
class EdgeRows:
    """Rows as the model is asked, and what each of them tries.

    Attributes:
        given: The rows, in the form of the samples.
        about: For each row its kind (``missing``, ``unseen category``, ``empty text``, ``extreme``,
            ``beyond``, ``negated``, ``zeros``, ``threshold``, ``beside a threshold``, or one of
            :data:`repobuild.samples.texts.FORMS`) and the column, empty for all of them.
    """

    given: Batch
    about: tuple[tuple[str, str], ...]


def edge_rows(given: Batch, feed: Feed, jumps: Batch) -> EdgeRows:
    """Make the edge rows.

    For every column: its smallest and largest value, values half its range beyond them, a missing one, for
    text an unseen category, the empty text and, where the samples have more than one word, other forms of a
    sample, each in a copy of a sample row; then all missing, all smallest, all largest and all beyond
    together, a row with its signs turned and one of zeros; then rows close to where the answer jumps.

    Args:
        given: Sample rows, as the model is asked.
        feed: How it is fed.
        jumps: Rows of :meth:`repobuild.sources.interface.Source.jumps`, the nearer half first, or nothing.
    """
    import numpy as np

    parts = list(_edges(given, feed))
    if jumps:
        count = len(next(iter(jumps.values())))
        kinds = [THRESHOLD] * (count // 2) + [BESIDE] * (count // 2)
        parts.extend(((kind, ""), _row(jumps, i)) for i, kind in enumerate(kinds))
    if not parts:
        return EdgeRows({}, ())
    names = {name for _, row in parts for name in row}
    rows: dict[str, Array] = {}
    for name in sorted(names):
        pieces = [row[name] if name in row else np.zeros(1, dtype=bool) for _, row in parts]
        rows[name] = np.concatenate(pieces)
    order = [n for n in (*given, *sorted(names)) if n in rows]
    return EdgeRows({n: rows[n] for n in dict.fromkeys(order)}, tuple(about for about, _ in parts))


_Edge = tuple[tuple[str, str], dict[str, "Array"]]


def _edges(given: Batch, feed: Feed) -> Iterator[_Edge]:
    import numpy as np

    if feed.mode is Mode.DOCUMENTS:
        yield from _text_edges(given, feed.name, None)
        return
    if feed.mode is Mode.MATRIX:
        yield from _matrix_edges(given, feed)
        return
    chosen = _spread(len(feed.columns))
    for index in chosen:
        column = feed.columns[index]
        if column.kind == "text":
            yield from _text_edges(given, column.name, column)
        elif column.kind in ("number", "integer"):
            yield from _number_edges(given, column)
    numbers = [c.name for c in feed.columns if c.kind in ("number", "integer")]
    if not numbers:
        return
    fixed = {c.name: _held(c.dtype or feed.dtype, given[c.name]) for c in feed.columns if c.name in numbers}
    gaps = {n: np.full(1, np.nan, given[n].dtype) for n in numbers if given[n].dtype.kind == "f"}
    if len(gaps) > 1:
        yield ("missing", ""), {**_row(given, 0), **gaps}
    for kind, make in _ROWS:
        changed = {name: make(given[name], fixed[name]) for name in numbers}
        if all(value is not None for value in changed.values()):
            yield (kind, ""), {**_row(given, 0), **{n: v for n, v in changed.items() if v is not None}}


def _number_edges(given: Batch, column: FeedColumn) -> Iterator[_Edge]:
    import numpy as np

    name = column.name
    for index, (kind, make) in enumerate(_VALUES):
        value = make(given[name], _held(column.dtype, given[name]))
        if value is not None:
            yield (kind, name), {**_row(given, index % 2), name: value}
    if given[name].dtype.kind == "f":
        row = _row(given, 0)
        row[name] = np.array([np.nan], dtype=given[name].dtype)
        yield ("missing", name), row


def _text_edges(given: Batch, name: str, column: FeedColumn | None) -> Iterator[_Edge]:
    import numpy as np

    key = missing_key(name)
    row = _row(given, 0)
    row[name] = np.array([UNSEEN])
    if key in given:
        row[key] = np.array([False])
    yield ("unseen category" if column else "unseen text", name), row
    row = _row(given, 0)
    row[name] = np.array([""])
    if key in given:
        row[key] = np.array([True])
        yield ("missing", name), row
    else:
        yield ("empty text", name), row
    several = [t for t in given[name].reshape(-1).tolist() if len(t.split()) > 1]
    for form, text in text_forms(several[0]).items() if several else ():
        row = _row(given, 0)
        row[name] = np.array([text])
        if key in given:
            row[key] = np.array([False])
        yield (form, name), row


def _matrix_edges(given: Batch, feed: Feed) -> Iterator[_Edge]:
    import numpy as np

    name, array = feed.name, given[feed.name]
    if array.dtype.kind not in "fiu" or array.ndim != 2:
        return
    limits = _held(feed.dtype, array)
    wide = array if array.dtype.kind == "f" else array.astype(np.float64)
    columns = [wide[:, c] for c in range(wide.shape[1])]
    for column in _spread(len(columns)):
        label = f"column {column}"
        for index, (kind, make) in enumerate(_VALUES):
            value = make(columns[column], limits)
            if value is None:
                continue
            row = wide[index % 2 : index % 2 + 1].copy()
            row[:, column] = value
            yield (kind, label), {name: row}
        row = wide[:1].copy()
        row[:, column] = np.nan
        yield ("missing", label), {name: row}
    if len(columns) > 1:
        yield ("missing", ""), {name: np.full_like(wide[:1], np.nan)}
    for kind, make in _ROWS:
        values = [v for c in columns if (v := make(c, limits)) is not None]
        if len(values) == len(columns):
            yield (kind, ""), {name: np.concatenate(values)[None]}


_Limits = tuple[float, float]
_Maker = Callable[["Array", _Limits], "Array | None"]


def _held(wire: DType | None, values: Array) -> _Limits:
    """The smallest and largest number that the samples' own type and that of the wire hold."""
    import numpy as np

    low, high = -np.inf, np.inf
    for dtype in (values.dtype, *((np.dtype(wire.numpy),) if wire else ())):
        if dtype.kind == "f":
            low, high = max(low, np.finfo(dtype).min.item()), min(high, np.finfo(dtype).max.item())
        elif dtype.kind in "iu":
            low, high = max(low, np.iinfo(dtype).min), min(high, np.iinfo(dtype).max)
    return low, high


def _smallest(values: Array, limits: _Limits) -> Array | None:
    return _one(_finite(values).min().item(), values, limits)


def _largest(values: Array, limits: _Limits) -> Array | None:
    return _one(_finite(values).max().item(), values, limits)


def _below(values: Array, limits: _Limits) -> Array | None:
    finite = _finite(values)
    return _one(finite.min().item() - _reach(finite), values, limits)


def _above(values: Array, limits: _Limits) -> Array | None:
    finite = _finite(values)
    return _one(finite.max().item() + _reach(finite), values, limits)


def _negated(values: Array, limits: _Limits) -> Array | None:
    return _one(-_finite(values)[0].item(), values, limits)


def _zero(values: Array, limits: _Limits) -> Array | None:
    return _one(0, values, limits)


_VALUES: tuple[tuple[str, _Maker], ...] = (
    ("extreme", _smallest),
    ("extreme", _largest),
    ("beyond", _below),
    ("beyond", _above),
)
_ROWS: tuple[tuple[str, _Maker], ...] = (*_VALUES, ("negated", _negated), ("zeros", _zero))


def _finite(values: Array) -> Array:
    """The finite values, or a zero where there are none."""
    import numpy as np

    finite = values[np.isfinite(values)]
    return finite if finite.size else np.zeros(1, dtype=values.dtype)


def _reach(finite: Array) -> float:
    """Half the range of the values, or half of the largest where all are equal, rounded as they are."""
    import numpy as np

    low, high = finite.min().item(), finite.max().item()
    twice = high - low or max(abs(low), abs(high)) or 1
    if isinstance(twice, int):
        return -(-twice // 2)
    return float(np.ceil(twice / 2)) if np.array_equal(finite, np.floor(finite)) else twice / 2


def _one(number: float, values: Array, limits: _Limits) -> Array | None:
    """A value as an array of one, in the samples' type and as float32 where theirs all are; else ``None``.

    Whole numbers come as such, since a float does not tell those near the ends of INT64 apart.
    """
    import numpy as np

    if not limits[0] <= number <= limits[1]:
        return None
    if values.dtype.kind == "f" and held_by_float32(values):
        number = float(np.float32(number))
    return np.array([number], dtype=values.dtype)


def _row(batch: Batch, index: int) -> dict[str, Array]:
    return {name: array[index : index + 1].copy() for name, array in batch.items()}


def _spread(count: int) -> list[int]:
    if count <= MOST_COLUMNS:
        return list(range(count))
    return sorted({round(i * (count - 1) / (MOST_COLUMNS - 1)) for i in range(MOST_COLUMNS)})
