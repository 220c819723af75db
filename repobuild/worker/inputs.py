"""What a fitted estimator takes: a matrix, a DataFrame, or texts; and how requests are turned into that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from repobuild.errors import Evidence, InputInvalid, evidence
from repobuild.feeds import Feed, FeedColumn, Mode, missing_key
from repobuild.tensors import Array, Batch, DType
from repobuild.worker.columns import (
    column_hints,
    column_names,
    knows_text,
    missing_texts,
    selects_columns,
    takes_texts,
)
from repobuild.worker.estimators import class_name, refuse_unfitted, width_of

DEFAULT_INPUT = "X"
DOCUMENT_INPUT = "text"
NUMERIC = ("number", "integer")


@dataclass(frozen=True, slots=True)
class Asked:
    """One item of the recipe's ``inputs:``."""

    name: str
    dtype: DType | None
    dims: tuple[int, ...] | None


def plan_feed(
    estimator: Any, given: str, inputs: Sequence[Mapping[str, Any]], layout: Mapping[str, Any] | None
) -> Feed:
    """Decide which inputs a model gets.

    A model of texts gets one text input; one that was trained on a DataFrame gets one input a column, or one
    matrix when all columns are numbers; every other gets one matrix. The recipe's inputs may say otherwise:
    one item makes a matrix, items with the columns' names make inputs of their own.

    Args:
        estimator: The fitted estimator.
        given: The file's path, for messages.
        inputs: The recipe's inputs: ``name``, ``dtype`` or ``None``, ``dims`` or ``None``.
        layout: See :meth:`repobuild.samples.table.Table.layout`; ``None`` without samples.

    Raises:
        InputInvalid: The estimator was not fitted, or the recipe or the samples do not fit it.
    """
    asked = [
        Asked(i["name"], DType(i["dtype"]) if i["dtype"] else None, tuple(i["dims"]) if i["dims"] else None)
        for i in inputs
    ]
    if takes_texts(estimator):
        refuse_unfitted(estimator, given)
        return _documents(asked)
    width = width_of(estimator, given)
    names = column_names(estimator)
    columns = list(layout["columns"]) if layout else []
    if names is None:
        if (layout and layout["framed"]) or len(columns) > 1:
            return _matrix_of_columns(asked, columns, width, estimator)
        return _matrix(asked, width, knows_text(estimator))
    if len(columns) == 1 and not layout["framed"] and columns[0]["name"] not in names:  # type: ignore[index]
        hints = column_hints(estimator)
        texts = [n for n in names if hints.get(n) == "text"]
        if texts and columns[0]["kind"] != "text":
            raise InputInvalid(
                "samples-unfit",
                f"the model takes text in column '{texts[0]}', the samples are one array of numbers",
                evidence([f"trained on a DataFrame with the columns {', '.join(names)}"]),
                "save the samples as csv, parquet or jsonl, under the names of the columns",
            )
        columns = [{**columns[0], "name": n, "dims": []} for n in names]
        return _frame(asked, [_column(c, None) for c in columns], estimator, as_array=True)
    if layout is None:
        hints = column_hints(estimator)
        if any(hints.get(n) not in (None, *NUMERIC) for n in names):
            raise InputInvalid(
                "samples-needed",
                "the model takes columns of text, and only samples tell what stands in them",
                evidence([f"columns: {', '.join(names)}"]),
                "give samples as csv, parquet or jsonl",
            )
        return _frame(asked, [FeedColumn(n, "number", "float64") for n in names], estimator)
    return _frame(asked, _chosen(columns, names, estimator), estimator)


def build(feed: Feed, batch: Batch) -> Any:
    """What the estimator is called with, from arrays by name.

    Args:
        feed: How the model is fed.
        batch: For a matrix or texts one array under the input's name; for a frame one ``[rows]`` array a
            column, and under ``missing_key(column)`` which texts are missing.
    """
    if feed.mode is Mode.MATRIX:
        return batch[feed.name]
    if feed.mode is Mode.DOCUMENTS:
        return [str(t) for t in batch[feed.name].ravel()]
    import pandas as pd

    return pd.DataFrame({c.name: _series(c, batch) for c in feed.columns})


def _chosen(columns: Sequence[Mapping[str, Any]], names: Sequence[str], estimator: Any) -> list[FeedColumn]:
    """The model's columns among those of the samples, in the model's order, with their final kinds."""
    have = {c["name"]: c for c in columns}
    lacking = [n for n in names if n not in have]
    if lacking:
        raise InputInvalid(
            "samples-unfit",
            f"the samples lack {'column' if len(lacking) == 1 else 'columns'} {', '.join(lacking[:8])}",
            evidence([f"the model was trained on {', '.join(names)}", f"the file has {', '.join(have)}"]),
            "give the columns that the model was trained on, under the same names",
        )
    hints, missing = column_hints(estimator), missing_texts(estimator)
    return [_column(have[n], hints.get(n), missing.get(n)) for n in names]


def _column(column: Mapping[str, Any], hint: str | None, missing: str | None = None) -> FeedColumn:
    """The column with the kind that the model knows it by, where the file leaves it open."""
    kind, name = column["kind"], column["name"]
    if kind == "other":
        raise InputInvalid(
            "samples-unfit",
            f"column '{name}' holds values that no tensor can hold, such as dates or mixed objects",
            (Evidence(f"its type is {column['dtype']}", key=name),),
            "turn it into numbers or text before the model, and train it so",
        )
    if column["dims"] not in ([], [1]):
        raise InputInvalid(
            "samples-unfit",
            f"column '{name}' has {column['dims']} values a row; a DataFrame has one",
            (Evidence(f"shape of a row: {column['dims']}", key=name),),
            "save one column a value",
        )
    if hint == "text" and kind != "text":
        if column["typed"]:
            raise InputInvalid(
                "samples-unfit",
                f"the model was trained on text (string objects) in column '{name}', the samples hold"
                f" {'int numbers' if kind == 'integer' else kind + 's'}",
                (Evidence(f"type of the column in the samples: {column['dtype']}", key=name),),
                "write the column as text; numbers such as postal codes lose their leading zeros otherwise",
            )
        kind = "text"
    if hint in NUMERIC and kind == "text":
        raise InputInvalid(
            "samples-unfit",
            f"the model was trained on numbers in column '{name}', the samples hold text",
            (Evidence(f"type of the column in the samples: {column['dtype']}", key=name),),
            "write the column as numbers",
        )
    if hint == "number" and kind == "integer":
        kind = "number"
    categories = column["categories"]
    return FeedColumn(
        name,
        kind,
        column["dtype"],
        missing=missing if kind == "text" else None,
        categories=None if categories is None else tuple(categories),
    )


def _frame(
    asked: Sequence[Asked], columns: Sequence[FeedColumn], estimator: Any, *, as_array: bool = False
) -> Feed:
    names = [c.name for c in columns]
    numeric = all(c.kind in NUMERIC for c in columns)
    if asked and {a.name for a in asked} == set(names):
        by_name = {a.name: a for a in asked}
        _refuse_dims(asked, 1)
        chosen = tuple(c.asked_as(by_name[c.name].dtype) for c in columns)
        return Feed(Mode.COLUMNS, "", chosen, None)
    if len(asked) == 1:
        if not numeric:
            text = next(c for c in columns if c.kind not in NUMERIC)
            raise _mismatch(
                f"the recipe asks for one input, and column '{text.name}' holds {text.kind}",
                [f"columns: {', '.join(names)}"],
                "name each column under inputs:, or none",
            )
        _refuse_dims(asked, len(names))
        return _as_matrix(asked[0].name, columns, asked[0].dtype, estimator)
    if asked:
        raise _mismatch(
            "inputs: in the recipe names neither one matrix nor the model's columns",
            [f"recipe: {', '.join(a.name for a in asked)}", f"columns: {', '.join(names)}"],
            "name every column, or one matrix, or nothing",
        )
    if (numeric and not selects_columns(estimator)) or as_array:
        return _as_matrix(DEFAULT_INPUT, columns, None, estimator)
    return Feed(Mode.COLUMNS, "", tuple(columns), None)


def _as_matrix(name: str, columns: Sequence[FeedColumn], dtype: DType | None, estimator: Any) -> Feed:
    return Feed(Mode.FRAME_MATRIX, name, tuple(columns), dtype, split=selects_columns(estimator))


def _matrix(asked: Sequence[Asked], width: int, text: bool) -> Feed:
    if len(asked) > 1:
        raise _mismatch(
            f"the recipe names {len(asked)} inputs, the model takes one matrix of {width} columns",
            [f"recipe: {', '.join(a.name for a in asked)}"],
            "name one input, or none for the default 'X'",
        )
    name, dtype = (asked[0].name, asked[0].dtype) if asked else (DEFAULT_INPUT, None)
    _refuse_dims(asked, width)
    if dtype is None and text:
        dtype = DType.BYTES
    return Feed(Mode.MATRIX, name, (), dtype, width=width)


def _matrix_of_columns(
    asked: Sequence[Asked], columns: Sequence[Mapping[str, Any]], width: int, estimator: Any
) -> Feed:
    """A model that was trained on a matrix, with samples that come as columns."""
    if len(columns) != width:
        raise InputInvalid(
            "samples-unfit",
            f"the samples have {len(columns)} columns, the model takes {width} columns",
            evidence([f"the file has {', '.join(c['name'] for c in columns)[:300]}"]),
            f"the {class_name(estimator)} was trained on a matrix without names: give its columns in order",
        )
    wrong = [c for c in columns if c["kind"] not in NUMERIC or c["dims"]]
    if wrong:
        raise InputInvalid(
            "samples-unfit",
            f"the model was trained on a matrix of numbers, column '{wrong[0]['name']}' holds"
            f" {wrong[0]['kind']}",
            evidence([f"type of the column in the samples: {wrong[0]['dtype']}"]),
            "give numbers, or train the model on a DataFrame",
        )
    feed = _matrix(asked, width, text=False)
    return Feed(
        Mode.MATRIX,
        feed.name,
        tuple(FeedColumn(c["name"], "number", c["dtype"]) for c in columns),
        feed.dtype,
        width=width,
    )


def _documents(asked: Sequence[Asked]) -> Feed:
    if len(asked) > 1:
        raise _mismatch(
            f"the recipe names {len(asked)} inputs, the model takes one text",
            [f"recipe: {', '.join(a.name for a in asked)}"],
            f"name one input, or none for the default '{DOCUMENT_INPUT}'",
        )
    _refuse_dims(asked, 1)
    name = asked[0].name if asked else DOCUMENT_INPUT
    return Feed(Mode.DOCUMENTS, name, (), DType.BYTES, width=1)


def _refuse_dims(asked: Sequence[Asked], width: int) -> None:
    for index, item in enumerate(asked):
        if item.dims is not None and item.dims != (width,):
            raise InputInvalid(
                "inputs-mismatch",
                f"the recipe gives input '{item.name}' dims {list(item.dims)}, the model takes {width}"
                " columns",
                (Evidence(f"the model takes {width} values a row there", key=f"inputs[{index}].dims"),),
                f"write dims: [{width}], or leave dims out",
            )


def _mismatch(message: str, lines: Sequence[str], hint: str) -> InputInvalid:
    return InputInvalid("inputs-mismatch", message, evidence(lines), hint)


def _series(column: FeedColumn, batch: Batch) -> Any:
    import numpy as np
    import pandas as pd

    values = np.asarray(batch[column.name]).reshape(-1)
    if column.kind != "text":
        return values
    texts: Array = values.astype(object)
    mask = batch.get(missing_key(column.name))
    if mask is not None:
        texts[np.asarray(mask).reshape(-1)] = None if column.missing == "None" else np.nan
    if column.categories is not None:
        known = dict.fromkeys(column.categories)
        unseen = dict.fromkeys(t for t in texts if isinstance(t, str) and t not in known)
        return pd.Categorical(texts, categories=[*known, *unseen])
    return pd.Series(texts, dtype=object)
