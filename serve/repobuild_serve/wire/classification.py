"""The classification extension: the largest values of an output as ``value:index[:label]``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repobuild_serve.errors import Code, LoadError, RequestError

if TYPE_CHECKING:
    import numpy as np


_MOST_CLASSES = 1_000_000


def check_class_count(classes: int) -> None:
    """Refuse to sort very many classes for every request.

    Raises:
        RequestError: There are too many (V9 of the Triton contract).
    """
    if classes > _MOST_CLASSES:
        raise RequestError("classification output tensor too large")


def top_classes(array: np.ndarray[Any, Any], count: int, labels: Sequence[str]) -> list[bytes]:
    """The top classes of each row, best first; of equal values the lower index comes first.

    Args:
        array: ``[rows, classes]``, numeric.
        count: Classes to give per row; fewer if there are fewer.
        labels: Label by class index; may be shorter than the row.

    Returns:
        ``rows * min(count, classes)`` texts, row by row.
    """
    import numpy as np

    count = min(count, array.shape[1])
    texts: list[bytes] = []
    for row in array:
        # Stable on the reversed row, then reversed: descending order with the lower index first among equals.
        order = (len(row) - 1 - np.argsort(row[::-1], kind="stable"))[::-1][:count]
        for index, value in zip(order.tolist(), row[order].tolist(), strict=True):
            text = f"{value:f}:{index}" if isinstance(value, float) else f"{value}:{index}"
            if index < len(labels) and labels[index]:
                text += f":{labels[index]}"
            texts.append(text.encode())
    return texts


def read_labels(folder: Path, filename: str) -> tuple[str, ...]:
    """Read a label file, one label a line; no file name gives no labels.

    Raises:
        LoadError: The file cannot be read.
    """
    if not filename:
        return ()
    path = folder / filename
    try:
        # Line ends only: other characters that Python takes for them may stand in a label.
        return tuple(path.read_text(encoding="utf-8").removesuffix("\n").split("\n"))
    except OSError as exc:
        text = f"failed to open text file for read {path}: {exc.strerror}"
        raise LoadError(text, Code.INTERNAL) from exc
    except UnicodeDecodeError as exc:
        raise LoadError(f"label file {path} is not UTF-8 text") from exc
