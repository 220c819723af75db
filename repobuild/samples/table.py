"""A sample file as columns, whatever format it has."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from repobuild.tensors import Array


class Kind(enum.Enum):
    """What a column holds."""

    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    TEXT = "text"
    OTHER = "other"

    @classmethod
    def of(cls, array: Array) -> Kind:
        """The kind of a NumPy array's values."""
        return _KINDS.get(array.dtype.kind, cls.OTHER)

    @property
    def numeric(self) -> bool:
        """Whether a matrix of numbers may hold it."""
        return self in (Kind.NUMBER, Kind.INTEGER)


_KINDS = {
    "f": Kind.NUMBER,
    "i": Kind.INTEGER,
    "u": Kind.INTEGER,
    "b": Kind.BOOLEAN,
    "U": Kind.TEXT,
    "S": Kind.TEXT,
}


@dataclass(frozen=True, slots=True)
class Column:
    """One named array of a sample file, rows on axis 0.

    Attributes:
        name: Column name, or array name of an npz file.
        kind: What it holds.
        values: The values; missing text is the empty string, a missing number NaN.
        missing: ``[rows]`` booleans, ``None`` when no text is missing.
        raw: The cells as text, for formats without types; ``None`` otherwise.
        categories: The categories of a pandas categorical in order, ``None`` for other columns.
    """

    name: str
    kind: Kind
    values: Array
    missing: Array | None = None
    raw: Array | None = None
    categories: tuple[str, ...] | None = None

    def as_text(self) -> Column:
        """The same cells as text; only for formats without types.

        Raises:
            ValueError: The format has types.
        """
        if self.kind is Kind.TEXT:
            return self
        if self.raw is None:
            raise ValueError(f"column '{self.name}' is not text in the file")
        empty = self.raw == ""
        return replace(self, kind=Kind.TEXT, values=self.raw, missing=empty if empty.any() else None)

    def as_number(self) -> Column:
        """The same numbers as floats.

        Raises:
            ValueError: They are not numbers.
        """
        if not self.kind.numeric and self.kind is not Kind.BOOLEAN:
            raise ValueError(f"column '{self.name}' holds no numbers")
        if self.values.dtype.kind == "f":
            return self
        return replace(self, kind=Kind.NUMBER, values=self.values.astype("float64"))


@dataclass(frozen=True, slots=True)
class Table:
    """A whole sample file.

    Attributes:
        columns: Its columns or arrays, in the order of the file.
        framed: Whether the format is one of columns (csv, parquet, jsonl), not of arrays.
        named: Whether the names mean something; an npy file has none.
        digest: sha256 of the file, hexadecimal.
        notes: What was decided while it was read.
    """

    columns: tuple[Column, ...]
    framed: bool
    named: bool
    digest: str
    notes: tuple[str, ...] = ()

    @property
    def by_name(self) -> Mapping[str, Column]:
        """Columns by name."""
        return {c.name: c for c in self.columns}

    def layout(self) -> dict[str, Any]:
        """Names, kinds, types and shapes, JSON-ready, for the child process that holds the model."""
        return {
            "framed": self.framed,
            "named": self.named,
            "columns": [
                {
                    "name": c.name,
                    "kind": c.kind.value,
                    "dtype": str(c.values.dtype),
                    "dims": list(c.values.shape[1:]),
                    "shape": list(c.values.shape),
                    "typed": c.raw is None,
                    "missing": c.missing is not None,
                    "categories": None if c.categories is None else list(c.categories),
                }
                for c in self.columns
            ],
        }
