"""What a fitted estimator tells of the columns it takes: their names, and what stood in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def takes_texts(estimator: Any) -> bool:
    """Whether the first step splits documents into words."""
    first = front(estimator)
    return all(hasattr(first, n) for n in ("analyzer", "build_analyzer", "tokenizer"))


def front(estimator: Any) -> Any:
    """The first step of a pipeline, through nested pipelines and fitted searches."""
    steps = getattr(estimator, "steps", None)
    if steps:
        return front(next((s for _, s in steps if s is not None and s != "passthrough"), steps[0][1]))
    best = getattr(estimator, "best_estimator_", None)
    return front(best) if best is not None else estimator


def fronts(estimator: Any) -> Iterator[Any]:
    """All first steps: those of a pipeline, and of the members of ensembles and unions."""
    first = front(estimator)
    yield first
    fitted: Any = getattr(first, "estimators_", ())
    members = [
        *(fitted if _is_list(fitted) else ()),
        *(t for _, t in getattr(first, "transformer_list", ())),
        *(c.estimator for c in getattr(first, "calibrated_classifiers_", ())),
    ]
    for member in members:
        if hasattr(member, "fit") and member is not first:
            yield from fronts(member)


def selects_columns(estimator: Any) -> bool:
    """Whether a first step picks columns by name, so that the graph needs them one by one."""
    return any(
        hasattr(f, "transformers_") and any(_by_name(cols) for _, _, cols in f.transformers_)
        for f in fronts(estimator)
    )


def column_names(estimator: Any) -> list[str] | None:
    """The columns of the DataFrame that the estimator was trained on, ``None`` for a matrix."""
    for candidate in (estimator, front(estimator), *fronts(estimator)):
        names = getattr(candidate, "feature_names_in_", None)
        if names is not None:
            return [str(n) for n in names]
    return None


def column_hints(estimator: Any) -> dict[str, str]:
    """What fitted encoders and imputers know of the columns they take: ``{column: kind}``."""
    hints: dict[str, str] = {}
    for transformer, columns in _fitted_on(estimator):
        hints.update(_hints_of(transformer, columns))
    return hints


def _fitted_on(estimator: Any) -> Iterator[tuple[Any, list[str]]]:
    """The transformers that meet the columns first, each with the names of those that it takes."""
    for first in fronts(estimator):
        if hasattr(first, "transformers_"):
            for _, transformer, columns in first.transformers_:
                if _by_name(columns):
                    yield transformer, [str(c) for c in columns]
        elif hasattr(first, "feature_names_in_"):
            yield first, [str(c) for c in first.feature_names_in_]


def missing_texts(estimator: Any) -> dict[str, str]:
    """What stands for missing text in the columns whose encoder or imputer knows of it.

    Returns:
        ``{column: "None" or "nan"}``, after the value that it was fitted on.
    """
    return {column: known[0] for column, known in _known_missing(estimator).items()}


def mixed_missing(estimator: Any) -> list[str]:
    """Notes on the columns where ``None`` and NaN are two things to the model, of which one is asked."""
    return [
        f"column '{column}': None and NaN are two things to the model; missing text is asked as {known[0]}"
        for column, known in _known_missing(estimator).items()
        if len(known) > 1
    ]


def _known_missing(estimator: Any) -> dict[str, list[str]]:
    """By column ``"None"`` and ``"nan"``, as far as its transformers know them, the first one's first."""
    found: dict[str, list[str]] = {}
    for transformer, columns in _fitted_on(estimator):
        for step in _chain(transformer):
            categories = getattr(step, "categories_", None)
            by_column: dict[str, list[Any]] = {}
            if categories is not None and len(categories) == len(columns):
                by_column = dict(zip(columns, (c.tolist() for c in categories), strict=True))
            elif hasattr(step, "statistics_"):
                by_column = {c: [getattr(step, "missing_values", "")] for c in columns}
            for column, values in by_column.items():
                known = found.setdefault(column, [])
                known.extend(t for v in values if is_missing(v) and (t := str(v)) not in known)
    return {column: known for column, known in found.items() if known}


def _chain(transformer: Any) -> Iterator[Any]:
    """A transformer's steps in order, through nested pipelines."""
    steps = getattr(transformer, "steps", None)
    if not steps:
        yield transformer
    for _, step in steps or ():
        yield from _chain(step)


def is_missing(value: Any) -> bool:
    """Whether a value is ``None`` or NaN, the two that scikit-learn takes for missing."""
    return value is None or bool(isinstance(value, float) and value != value)


def _hints_of(transformer: Any, columns: Sequence[str]) -> dict[str, str]:
    first = front(transformer)
    categories = getattr(first, "categories_", None)
    if categories is not None and len(categories) == len(columns):
        return {c: k for c, k in zip(columns, map(_kind_of_values, categories), strict=True) if k}
    statistics = getattr(first, "statistics_", None)
    if statistics is not None and len(statistics) == len(columns):
        return {c: "text" for c, v in zip(columns, statistics, strict=True) if isinstance(v, str)}
    return {}


def _kind_of_values(values: Any) -> str | None:
    present = [v for v in getattr(values, "tolist", lambda: list(values))() if not is_missing(v)]
    if present and all(isinstance(v, str) for v in present):
        return "text"
    if present and all(isinstance(v, bool) for v in present):
        return "boolean"
    if present and all(isinstance(v, int) for v in present):
        return "integer"
    return "number" if present and all(isinstance(v, int | float) for v in present) else None


def knows_text(estimator: Any) -> bool:
    """Whether a first step was fitted on a matrix of text."""
    return any(
        _kind_of_values(values) == "text"
        for first in fronts(estimator)
        for values in (getattr(first, "categories_", None) or ())
    )


def _by_name(columns: Any) -> bool:
    return bool(_is_list(columns) and len(columns) and all(isinstance(c, str) for c in columns))


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or (hasattr(value, "tolist") and hasattr(value, "shape"))
