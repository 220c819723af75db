"""Which steps of an ensemble a request needs, and whether the streams of decoupled steps can be joined."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from repobuild_serve.config.settings import EnsembleStep
from repobuild_serve.errors import LoadError


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

    def check_streams(self, name: str, decoupled: Collection[int]) -> None:
        """Check that wherever the responses of decoupled steps meet, one stream feeds the other.

        Each response of a decoupled step makes a row of its own of all that follows. Two streams that do not
        come out of one another have no order between them, so a step that takes both could not tell which
        response of the one belongs to which of the other.

        Raises:
            LoadError: Two independent streams meet.
        """
        rows = [{*self.ancestors(index), index} & {*decoupled} for index in range(len(self.steps))]
        for index, step in enumerate(self.steps):
            feeding = sorted(rows[index] - {index})
            for one in feeding:
                for other in feeding:
                    if one < other and one not in rows[other] and other not in rows[one]:
                        raise LoadError(
                            f"ensemble '{name}': step {index} ('{step.model}') joins the responses of the "
                            f"decoupled models '{self.steps[one].model}' and '{self.steps[other].model}', "
                            "neither of which follows from the other"
                        )
