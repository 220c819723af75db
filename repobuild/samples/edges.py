"""Edge rows: rows that real data will hold one day and the samples may not, made from the samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from repobuild.feeds import Feed, FeedColumn, Mode, missing_key
from repobuild.tensors import Array, Batch

MOST_COLUMNS = 48
"""Columns that get rows of their own, spread evenly over all."""
UNSEEN = "an unseen category"


@dataclass(frozen=True, slots=True)
class EdgeRows:
    """Rows as the model is asked, and what each of them tries.

    Attributes:
        given: The rows, in the form of the samples.
        about: For each row its kind (``missing``, ``unseen category``, ``empty text``, ``extreme``,
            ``threshold``) and the column, empty for all of them.
    """

    given: Batch
    about: tuple[tuple[str, str], ...]


def edge_rows(given: Batch, feed: Feed, jumps: Batch) -> EdgeRows:
    """Make the edge rows.

    For every column: its smallest and largest value, a missing one, for text an unseen category and the empty
    text, each in a copy of a sample row; then all smallest and all largest together; then rows close to where
    the answer jumps.

    Args:
        given: Sample rows, as the model is asked.
        feed: How it is fed.
        jumps: Rows of :meth:`repobuild.sources.interface.Source.jumps`, or nothing.
    """
    import numpy as np

    parts = list(_edges(given, feed))
    if jumps:
        count = len(next(iter(jumps.values())))
        parts.extend((("threshold", ""), _row(jumps, i)) for i in range(count))
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
    if feed.mode is Mode.DOCUMENTS:
        yield from _text_edges(given, feed.name, None)
        return
    if feed.mode is Mode.MATRIX:
        yield from _matrix_edges(given, feed.name)
        return
    chosen = _spread(len(feed.columns))
    for index in chosen:
        column = feed.columns[index]
        if column.kind == "text":
            yield from _text_edges(given, column.name, column)
        elif column.kind in ("number", "integer"):
            yield from _number_edges(given, column)
    numbers = [c.name for c in feed.columns if c.kind in ("number", "integer")]
    for which in (_smallest, _largest):
        row = _row(given, 0)
        for name in numbers:
            row[name] = which(given[name])
        if numbers:
            yield ("extreme", ""), row


def _number_edges(given: Batch, column: FeedColumn) -> Iterator[_Edge]:
    import numpy as np

    name = column.name
    for index, which in enumerate((_smallest, _largest)):
        row = _row(given, index)
        row[name] = which(given[name])
        yield ("extreme", name), row
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


def _matrix_edges(given: Batch, name: str) -> Iterator[_Edge]:
    import numpy as np

    array = given[name]
    if array.dtype.kind not in "fiu" or array.ndim != 2:
        return
    wide = array if array.dtype.kind == "f" else array.astype(np.float64)
    for column in _spread(array.shape[1]):
        label = f"column {column}"
        for index, which in enumerate((_smallest, _largest)):
            row = wide[index : index + 1].copy()
            row[:, column] = which(wide[:, column])
            yield ("extreme", label), {name: row}
        row = wide[:1].copy()
        row[:, column] = np.nan
        yield ("missing", label), {name: row}
    for which in (_smallest, _largest):
        yield ("extreme", ""), {name: np.concatenate([which(wide[:, c]) for c in range(wide.shape[1])])[None]}


def _smallest(values: Array) -> Array:
    return _extreme(values, "min")


def _largest(values: Array) -> Array:
    return _extreme(values, "max")


def _extreme(values: Array, which: str) -> Array:
    """The smallest or largest finite value, as an array of one."""
    import numpy as np

    finite = values[np.isfinite(values)]
    found = getattr(finite, which)() if finite.size else values[0]
    return np.array([found], dtype=values.dtype)


def _row(batch: Batch, index: int) -> dict[str, Array]:
    return {name: array[index : index + 1].copy() for name, array in batch.items()}


def _spread(count: int) -> list[int]:
    if count <= MOST_COLUMNS:
        return list(range(count))
    return sorted({round(i * (count - 1) / (MOST_COLUMNS - 1)) for i in range(MOST_COLUMNS)})
