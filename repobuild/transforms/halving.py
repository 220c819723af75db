"""Which nodes of a graph compute in float16, and why the others do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repobuild.errors import ConversionFailed, evidence
from repobuild.graph.walk import names_used
from repobuild.transforms.casting import FLOAT, NodeKey, Readers, TensorKey, readers
from repobuild.transforms.element_types import Types, bodies, graphs
from repobuild.transforms.halvable import Halves, Operators

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

NAMED = 12
"""Nodes that a note names."""
VALUES, CRASHES = "for their values", "since ONNX Runtime would crash"


@dataclass(slots=True)
class _Kept:
    """A node that stays float32, and why.

    Attributes:
        node: The node in words.
        why: The reason in words.
        cause: What the reason is about: :data:`VALUES` or :data:`CRASHES`; empty for the operator itself.
    """

    node: str
    why: str
    cause: str


class Plan:
    """Which nodes compute in float16."""

    def __init__(self, proto: ModelProto, types: Types) -> None:
        self.halves: dict[NodeKey, Halves] = {}
        self.kept: dict[NodeKey, _Kept] = {}
        self.readers: Readers = readers(proto.graph)
        self.nodes: dict[NodeKey, NodeProto] = {}
        self._types = types
        operators = Operators(proto)
        for path, graph in graphs(proto.graph):
            known = {name: kind for at in range(len(path) + 1) for name, kind in types[path[:at]].items()}
            for index, node in enumerate(graph.node):
                self.nodes[path, index] = node
                self._decide((path, index), node, known, operators)
        self.floats = len(self.halves) + len(self.kept)

    def _decide(self, key: NodeKey, node: NodeProto, known: Mapping[str, int], operators: Operators) -> None:
        if FLOAT not in (known.get(name) for name in (*node.input, *node.output)):
            return
        if not node.domain and node.op_type == "Constant":
            return
        if not node.domain and node.op_type == "Cast":
            if known.get(node.output[0]) == FLOAT:
                self.halves[key] = Halves(frozenset(), frozenset({0}))
            return
        if any(True for _ in bodies(node)):
            return
        found = operators.halves(node, known)
        if isinstance(found, Halves):
            self.halves[key] = found
        else:
            self.kept[key] = _Kept(_spoken(node, key), found, "")

    def keep(self, key: NodeKey, why: str, cause: str = VALUES) -> None:
        """Leave a node in float32.

        Args:
            key: The node.
            why: The reason in words.
            cause: :data:`VALUES` or :data:`CRASHES`.
        """
        if self.halves.pop(key, None) is not None:
            self.kept[key] = _Kept(_spoken(self.nodes[key], key), why, cause)

    def keep_behind(self, tensor: TensorKey, why: str) -> bool:
        """Leave in float32 what a tensor comes from: its makers, or else the nearest that are still float16.

        NaN may come of values that were rounded long before, as 1 / (a - b) does.

        Returns:
            Whether there was anything left to keep.
        """
        count = len(self.kept)
        layer = [tensor]
        seen: set[NodeKey] = set()
        while layer and len(self.kept) == count:
            makers = [self.readers.makers[t] for t in layer if t in self.readers.makers]
            for found in layer:
                self.keep_around(
                    found, why if found == tensor else f"is what {tensor[1]} comes from", inside=True
                )
            seen.update(makers)
            layer = [
                ((), name)
                for key in makers
                for name in names_used(self.nodes[key])
                if self.readers.makers.get(((), name)) not in seen
            ]
        return len(self.kept) > count

    def keep_around(self, tensor: TensorKey, why: str, *, inside: bool = False) -> None:
        """Leave the nodes that make and read a tensor in float32.

        Args:
            tensor: The tensor.
            why: What is wrong with it in float16.
            inside: Whether all nodes in the bodies of its maker count as makers, since their own tensors were
                not looked at.
        """
        said = f"'{tensor[1]}' {why}"
        maker = self.readers.makers.get(tensor)
        if maker is not None:
            self.keep(maker, said)
            path, index = maker
            below = [k for k in self.halves if len(k[0]) > len(path) and k[0][: len(path)] == path]
            for key in below if inside else ():
                if key[0][len(path)][0] == index:
                    self.keep(key, said)
        for key, _ in self.readers.nodes.get(tensor, ()):
            if self.nodes[key].op_type != "Cast":
                self.keep(key, said)

    def maker_takes_whole_numbers(self, tensor: TensorKey) -> bool:
        """Whether a Cast makes the tensor of integers."""
        maker = self.readers.makers.get(tensor)
        if maker is None or self.nodes[maker].op_type != "Cast":
            return False
        path, name = maker[0], self.nodes[maker].input[0]
        while path and name not in self._types[path]:
            path = path[:-1]
        return self._types[path].get(name) in _INTEGERS

    def demand_something(self, weights: int) -> None:
        """Refuse a graph in which nothing would change.

        Raises:
            ConversionFailed: ``nothing-to-convert``.
        """
        if any(half.inputs for half in self.halves.values()):
            return
        why = [f"{kept.node}: {kept.why}" for kept in list(self.kept.values())[:5]]
        raise ConversionFailed(
            "nothing-to-convert",
            "no node of the graph can compute in float16",
            evidence(why or [f"it has {len(self.nodes)} nodes and {weights} float32 weights"]),
            "leave precision: fp16 out for this model",
        )

    def notes(self) -> list[str]:
        """The nodes that stay float32: all that were forced, by reason; the others by count."""
        notes: list[str] = []
        for cause in (VALUES, CRASHES):
            forced = [kept for kept in self.kept.values() if kept.cause == cause]
            if forced:
                named = "; ".join(f"{kept.node}: {kept.why}" for kept in forced[:NAMED])
                more = f"; and {len(forced) - NAMED} more" if len(forced) > NAMED else ""
                notes.append(f"{len(forced)} nodes stay float32 {cause}: {named}{more}")
        counted: dict[str, int] = {}
        for kept in self.kept.values():
            if not kept.cause:
                counted[kept.why] = counted.get(kept.why, 0) + 1
        if counted:
            said = "; ".join(f"{why} ({count})" for why, count in sorted(counted.items()))
            notes.append(f"nodes that stay float32 for their operator: {said}")
        return notes


_INTEGERS = frozenset(range(2, 8)) | {12, 13}
"""``TensorProto`` numbers of the integer types of 8 to 64 bits."""


def _spoken(node: NodeProto, key: NodeKey) -> str:
    name = node.name or (node.output[0] if node.output else str(key[1]))
    return f"{node.op_type} '{name}'"
