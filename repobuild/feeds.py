"""How a model is fed: the agreement between the samples, the child process and the graph's inputs."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any

from repobuild.tensors import DType, TensorSpec

KINDS = {
    "integer": DType.INT64,
    "boolean": DType.BOOL,
    "text": DType.BYTES,
}


class Mode(enum.Enum):
    """What the model is called with, and what the graph takes."""

    MATRIX = "matrix"
    """An array; one input of the same form."""
    FRAME_MATRIX = "frame-matrix"
    """A DataFrame of numbers; one input that holds its columns side by side."""
    COLUMNS = "columns"
    """A DataFrame; one input a column."""
    DOCUMENTS = "documents"
    """A list of texts; one input with one text a row."""


def missing_key(column: str) -> str:
    """The name under which a batch says which texts of a column are missing."""
    return f"missing\x00{column}"


@dataclass(frozen=True, slots=True)
class FeedColumn:
    """One column of the DataFrame.

    Attributes:
        name: Its name.
        kind: ``number``, ``integer``, ``boolean`` or ``text``.
        stored: NumPy type in the sample file.
        dtype: Element type that the recipe asks for, ``None`` for the one that follows from the kind.
        missing: What stands for missing text as the model knows it: ``None`` where it knows of none, else
            ``"None"`` or ``"nan"``.
        categories: Those of a pandas categorical, ``None`` for other columns.
    """

    name: str
    kind: str
    stored: str
    dtype: DType | None = None
    missing: str | None = None
    categories: tuple[str, ...] | None = None

    def asked_as(self, dtype: DType | None) -> FeedColumn:
        """The same with the recipe's element type."""
        return replace(self, dtype=dtype)

    def wire(self, floats: DType) -> DType:
        """Element type on the wire, with the one that was chosen for open floats."""
        return self.dtype or KINDS.get(self.kind, floats)


@dataclass(frozen=True, slots=True)
class Feed:
    """How one model is fed.

    Attributes:
        mode: What it is called with.
        name: The input's name; empty for one input a column.
        columns: The DataFrame's columns, or the file's columns behind a matrix, or none.
        dtype: Element type that the recipe or the data fix, ``None`` for the one that is chosen.
        width: Values a row of a matrix or of texts.
        split: Whether the graph picks columns by name, so that a matrix must be split into them.
    """

    mode: Mode
    name: str
    columns: tuple[FeedColumn, ...]
    dtype: DType | None
    width: int = 0
    split: bool = False

    @property
    def open(self) -> bool:
        """Whether FP32 or FP64 is left to choose for some input."""
        if self.mode is Mode.COLUMNS:
            return any(c.kind == "number" and c.dtype is None for c in self.columns)
        return self.dtype is None

    def inputs(self, floats: DType) -> tuple[TensorSpec, ...]:
        """The graph's inputs, axis 0 free, with the type chosen for open floats."""
        if self.mode is Mode.COLUMNS:
            return tuple(TensorSpec(c.name, c.wire(floats), (None, 1)) for c in self.columns)
        width = len(self.columns) if self.mode is Mode.FRAME_MATRIX else self.width
        return (TensorSpec(self.name, self.dtype or floats, (None, width)),)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {
            "mode": self.mode.value,
            "name": self.name,
            "columns": [
                {
                    "name": c.name,
                    "kind": c.kind,
                    "stored": c.stored,
                    "dtype": c.dtype.value if c.dtype else None,
                    "missing": c.missing,
                    "categories": None if c.categories is None else list(c.categories),
                }
                for c in self.columns
            ],
            "dtype": self.dtype.value if self.dtype else None,
            "width": self.width,
            "split": self.split,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Feed:
        """Read what :meth:`to_dict` gave."""
        return cls(
            Mode(data["mode"]),
            data["name"],
            tuple(
                FeedColumn(
                    c["name"],
                    c["kind"],
                    c["stored"],
                    DType(c["dtype"]) if c["dtype"] else None,
                    c["missing"],
                    None if c["categories"] is None else tuple(c["categories"]),
                )
                for c in data["columns"]
            ),
            DType(data["dtype"]) if data["dtype"] else None,
            data["width"],
            data["split"],
        )
