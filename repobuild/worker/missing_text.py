"""Lets a model be converted as if missing text were the empty text, which is what a client sends for it.

KServe's BYTES tensors have no missing value, and skl2onnx writes NaN as the category ``"nan"``. The fitted
state is changed only while the exporter reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from repobuild.worker.columns import is_missing

EMPTY = ""


@contextmanager
def missing_as_empty(steps: Iterable[Any]) -> Iterator[None]:
    """Let encoders and imputers of text know missing text as the empty text, until the block ends.

    A category list that also holds the empty text is left alone: the two cannot be told apart on the wire,
    and the checks say so.

    Args:
        steps: The model's fitted steps; as they were when the block ends.
    """
    before: list[tuple[Any, str, Any]] = []
    try:
        for step in steps:
            for name, value in _changes(step):
                before.append((step, name, getattr(step, name)))
                setattr(step, name, value)
        yield
    finally:
        for step, name, value in reversed(before):
            setattr(step, name, value)


def _changes(step: Any) -> Iterator[tuple[str, Any]]:
    categories = getattr(step, "categories_", None)
    if isinstance(categories, list) and any(map(_can_be_told, categories)):
        yield "categories_", [_with_empty(c) if _can_be_told(c) else c for c in categories]
    statistics = getattr(step, "statistics_", None)
    if (
        statistics is not None
        and is_missing(getattr(step, "missing_values", EMPTY))
        and any(isinstance(v, str) for v in statistics)
    ):
        yield "missing_values", EMPTY


def _can_be_told(categories: Any) -> bool:
    """Whether text and exactly one missing value are known, and the empty text is not."""
    values = categories.tolist()
    texts = [v for v in values if isinstance(v, str)]
    missing = [v for v in values if is_missing(v)]
    return bool(texts) and len(missing) == 1 and EMPTY not in texts


def _with_empty(categories: Any) -> Any:
    changed = categories.copy()
    changed[[is_missing(v) for v in categories.tolist()]] = EMPTY
    return changed
