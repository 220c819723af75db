"""Selections such as ``probabilities[:, 1:2]``: one notation for arrays and for ONNX graphs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from repobuild.tensors import Array

_FORM = re.compile(r"\s*(?P<name>[^\[\]]*?)\s*(?:\[(?P<index>[^\[\]]*)\])?\s*")
_INT = re.compile(r"[+-]?\d{1,9}")


@dataclass(frozen=True, slots=True)
class Selection:
    """A named answer and, per axis, the NumPy basic index to take of it.

    Attributes:
        answer: Name of the answer.
        index: One slice or integer an axis, from axis 0; an integer drops its axis. Axis 0, the rows, is
            always taken whole.
    """

    answer: str
    index: tuple[slice | int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Selection:
        """Read ``name`` or ``name[axis 0, axis 1, ...]``, an axis as ``:``, ``a:b``, ``a:b:c`` or an integer.

        Raises:
            ValueError: It is not of that form, or axis 0 is not ``:``.
        """
        form = _FORM.fullmatch(text)
        if form is None or not form["name"]:
            raise ValueError(f"'{text}' is not of the form name or name[:, 1:2]")
        if form["index"] is None:
            return cls(form["name"])
        index = tuple(_axis(part.strip(), text) for part in form["index"].split(","))
        if index[0] != slice(None):
            raise ValueError(f"the first index in '{text}' must be ':', because axis 0 holds the rows")
        return cls(form["name"], index)

    def apply(self, array: Array) -> Array:
        """The selected part of an answer, as NumPy's basic indexing gives it.

        Args:
            array: The answer, rows on axis 0.

        Raises:
            IndexError: The answer has fewer axes, or an integer lies outside its axis.
        """
        picked: Array = array[self.index] if self.index else array
        return picked

    def __str__(self) -> str:
        if not self.index:
            return self.answer
        return f"{self.answer}[{', '.join(_text(part) for part in self.index)}]"


def _axis(part: str, whole: str) -> slice | int:
    if _INT.fullmatch(part):
        return int(part)
    bounds = [bound.strip() for bound in part.split(":")]
    if len(bounds) not in (2, 3) or not all(b == "" or _INT.fullmatch(b) for b in bounds):
        raise ValueError(f"'{part}' in '{whole}' is neither an integer nor a slice such as 1:2")
    values = [int(b) if b else None for b in bounds]
    if len(values) == 3 and values[2] is not None and values[2] < 1:
        raise ValueError(f"the step in '{whole}' must be at least 1")
    return slice(*values)


def _text(part: slice | int) -> str:
    if isinstance(part, int):
        return str(part)
    start, stop = ("" if b is None else str(b) for b in (part.start, part.stop))
    return f"{start}:{stop}" if part.step is None else f"{start}:{stop}:{part.step}"
