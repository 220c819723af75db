"""The pass that makes a graph answer with what a recipe asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from repobuild.errors import ConversionFailed, evidence
from repobuild.graph.operators import default_opset, with_constants
from repobuild.graph.walk import fresh_label, names_within, rename
from repobuild.selection import Selection

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

PRODUCER = "repobuild"

GraphPass: TypeAlias = "Callable[[ModelProto], None]"
"""Changes a model in place."""


def select_outputs(
    chains: Mapping[str, Sequence[Selection]], ranks: Mapping[str, int], *, lowest: int = 2
) -> GraphPass:
    """A pass that makes the graph answer with selections of its outputs, under new names.

    An answer of rank 1 becomes ``[rows, 1]``, since Triton wants one axis beside the batch axis; without a
    batch axis a number becomes ``[1]``.

    Args:
        chains: ``{new name: selections to apply one after another}``; the first names an old output.
        ranks: Rank of each old output.
        lowest: Rank that each output has at least: 2 with a batch axis, 1 without.
    """

    def step(model: ModelProto) -> None:
        graph = model.graph
        for name, chain in chains.items():
            if chain[0].answer not in ranks:
                raise ConversionFailed(
                    "export-incomplete",
                    f"the graph has no output '{chain[0].answer}' for '{name}'",
                    evidence([f"it has {', '.join(sorted(ranks))}"]),
                    "ask for another answer of the model under outputs: in the recipe",
                )
        moved = _make_room(graph, {*chains, *ranks})
        del graph.output[:]
        for name, chain in chains.items():
            start = chain[0].answer
            _append_chain(model, moved.get(start, start), chain, ranks[start], name, lowest)
            graph.output.add().name = name

    return step


_Step: TypeAlias = "tuple[str, dict[str, Sequence[int] | int], dict[str, int]]"
"""An operator, its constant inputs by label, its attributes."""


def _append_chain(
    model: ModelProto, start: str, chain: Sequence[Selection], rank: int, name: str, lowest: int
) -> None:
    """Append nodes that compute ``name`` from the tensor ``start`` of the given rank."""
    from onnx import helper

    steps: list[_Step] = []
    for selection in chain:
        found, rank = _selection_steps(selection, rank)
        steps.extend(found)
    if rank < lowest:
        steps.append(("Unsqueeze", {"axes": list(range(rank, lowest))}, {}))
    current, opset = start, default_opset(model)
    for index, (operator, constants, attributes) in enumerate(steps or [("Identity", {}, {})]):
        label = fresh_label(model.graph, f"{PRODUCER}/{name}/{index}_{operator}")
        target = name if index == max(len(steps), 1) - 1 else label
        node = with_constants(model.graph, operator, current, target, constants, label, opset)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        model.graph.node.append(node)
        current = target


def _selection_steps(selection: Selection, rank: int) -> tuple[list[_Step], int]:
    """The operators that take a selection of a tensor, and the rank that is left."""
    steps: list[_Step] = []
    slices = [
        (axis, part)
        for axis, part in enumerate(selection.index)
        if isinstance(part, slice) and part != slice(None)
    ]
    if slices:
        largest = 2**63 - 1
        bounds: dict[str, Sequence[int] | int] = {
            "starts": [p.start or 0 for _, p in slices],
            "ends": [largest if p.stop is None else p.stop for _, p in slices],
            "axes": [axis for axis, _ in slices],
            "steps": [p.step or 1 for _, p in slices],
        }
        steps.append(("Slice", bounds, {}))
    numbers = [(axis, part) for axis, part in enumerate(selection.index) if isinstance(part, int)]
    steps.extend(("Gather", {"index": part}, {"axis": axis}) for axis, part in reversed(numbers))
    return steps, rank - len(numbers)


def _make_room(graph: GraphProto, names: set[str]) -> dict[str, str]:
    """Move tensors that bear one of the names out of the way; returns ``{name: new name}``.

    Graph inputs keep their names.
    """
    inputs = {i.name for i in graph.input}
    produced = {o for node in graph.node for o in node.output} | {t.name for t in graph.initializer}
    taken = inputs | produced | names | names_within(graph)
    moved: dict[str, str] = {}
    for name in sorted((names & produced) - inputs):
        fresh = f"model/{name}"
        while fresh in taken:
            fresh += "_"
        taken.add(fresh)
        moved[name] = fresh
    rename(graph, moved)
    return moved
