"""Which steps of an ensemble a request needs, and which follow from which."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from repobuild_serve.config.settings import EnsembleStep

_REMEMBERED = 1024
"""Sets of outputs whose steps are remembered: clients choose them, out of very many."""


class Graph:
    """The steps of an ensemble and the tensors between them.

    Args:
        steps: The steps, checked: every tensor has one producer at most, and there is no cycle.
    """

    def __init__(self, steps: Sequence[EnsembleStep]) -> None:
        self.steps = tuple(steps)
        self._producer = {
            tensor: index for index, step in enumerate(self.steps) for tensor in step.outputs.values()
        }
        self._needed: dict[frozenset[str], frozenset[int]] = {}

    def needed(self, outputs: Collection[str]) -> frozenset[int]:
        """The steps that must run for these ensemble outputs."""
        wanted = frozenset(outputs)
        found = self._needed.get(wanted)
        if found is None:
            if len(self._needed) >= _REMEMBERED:
                self._needed.clear()
            found = self._needed[wanted] = frozenset().union(
                *(
                    {index, *self.ancestors(index)}
                    for tensor in wanted
                    if (index := self._producer.get(tensor)) is not None
                )
            )
        return found

    def ancestors(self, step: int) -> frozenset[int]:
        """The steps whose outputs a step needs, directly or not."""
        found: set[int] = set()
        pending = [step]
        while pending:
            for tensor in self.steps[pending.pop()].inputs.values():
                producer = self._producer.get(tensor)
                if producer is not None and producer not in found:
                    found.add(producer)
                    pending.append(producer)
        return frozenset(found)

    def following(self, step: int) -> frozenset[int]:
        """The steps that need outputs of a step, directly or not."""
        return frozenset(index for index in range(len(self.steps)) if step in self.ancestors(index))

    def producer(self, tensor: str) -> int | None:
        """The step that makes a tensor; None for an input of the ensemble."""
        return self._producer.get(tensor)
