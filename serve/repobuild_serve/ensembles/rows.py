"""The tensors of a request on its way through an ensemble, line by line of responses."""

from __future__ import annotations

from collections.abc import Iterator

from repobuild_serve.core.ticket import Tensor


class Row:
    """The tensors of one line of responses: the request itself, or one response of a decoupled step.

    Attributes:
        parent: Row whose tensors this one has too.
        tensors: Tensors of its own, by ensemble name.
        steps: Steps that may still be started on this row.
        done: Steps that have given this row all they give.
        below: Rows that were made of this one's.
        answered: Whether the ensemble's response for this row has been sent, or is left to rows below it.
    """

    __slots__ = ("answered", "below", "done", "parent", "steps", "tensors")

    def __init__(self, parent: Row | None, tensors: dict[str, Tensor], steps: set[int]) -> None:
        self.parent = parent
        self.tensors = tensors
        self.steps = steps
        self.done: set[int] = set()
        self.below: dict[Row, None] = {}
        self.answered = False

    def get(self, name: str) -> Tensor | None:
        """A tensor of this row or of one above it."""
        for row in self._upwards():
            tensor = row.tensors.get(name)
            if tensor is not None:
                return tensor
        return None

    def has_done(self, step: int) -> bool:
        """Whether a step has given all it gives to this row, or to one above it."""
        return any(step in row.done for row in self._upwards())

    def downwards(self) -> Iterator[Row]:
        """This row and all that were made of it."""
        yield self
        for row in tuple(self.below):
            yield from row.downwards()

    def _upwards(self) -> Iterator[Row]:
        row: Row | None = self
        while row is not None:
            yield row
            row = row.parent
