"""Rewrites a float32 graph so that chosen nodes compute in float16, with Casts where the two meet.

A tensor keeps its name in the type in which it is made; a Cast, placed before the first reader that needs the
other type, serves all later readers. Inputs and outputs of the graph and of every body stay float32.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from repobuild.transforms.element_types import Path, Types, bodies, graphs
from repobuild.transforms.halvable import Halves
from repobuild.transforms.nodes import cast, fresh_name, set_nodes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

NodeKey: TypeAlias = tuple[Path, int]
"""A node: its graph, and its index there."""
TensorKey: TypeAlias = tuple[Path, str]
"""A tensor: the graph that it is made in, and its name."""
_Versions: TypeAlias = dict[int, str]

FLOAT, HALF = 1, 10
"""``TensorProto.FLOAT`` and ``TensorProto.FLOAT16``."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Who reads and makes each tensor.

    Attributes:
        nodes: Nodes that read it, with the position of the input.
        outputs: Tensors that a graph or body answers with.
        makers: The node that makes it.
    """

    nodes: Mapping[TensorKey, tuple[tuple[NodeKey, int], ...]]
    outputs: AbstractSet[TensorKey]
    makers: Mapping[TensorKey, NodeKey]


def readers(graph: GraphProto) -> Readers:
    """Find who reads what, through the bodies of control-flow nodes."""
    defined: dict[Path, set[str]] = {}
    makers: dict[TensorKey, NodeKey] = {}
    for path, inner in graphs(graph):
        names = {v.name for v in inner.input} | {t.name for t in inner.initializer}
        for index, node in enumerate(inner.node):
            names.update(node.output)
            makers.update({(path, name): (path, index) for name in node.output if name})
        defined[path] = names

    def owner(path: Path, name: str) -> TensorKey:
        while path and name not in defined[path]:
            path = path[:-1]
        return path, name

    nodes: dict[TensorKey, list[tuple[NodeKey, int]]] = {}
    outputs: set[TensorKey] = set()
    for path, inner in graphs(graph):
        outputs.update(owner(path, value.name) for value in inner.output)
        for index, node in enumerate(inner.node):
            for position, name in enumerate(node.input):
                if name:
                    nodes.setdefault(owner(path, name), []).append(((path, index), position))
    return Readers({key: tuple(found) for key, found in nodes.items()}, outputs, makers)


class Rewriter:
    """Rewrites one model, in place.

    Args:
        types: Element types of the graph as it is.
        halves: The nodes that compute in float16.
        stored: The weights (initialisers and Constants) that are stored in float16.
    """

    def __init__(
        self, types: Types, halves: Mapping[NodeKey, Halves], stored: AbstractSet[TensorKey]
    ) -> None:
        self._types, self._halves, self._stored = types, halves, stored
        self._taken: set[str] = set()
        self.renamed: dict[str, str] = {}

    def rewrite(self, proto: ModelProto) -> None:
        """Rewrite; ``renamed`` then has the outputs of the graph under the name of their float16 form."""
        for _, graph in graphs(proto.graph):
            self._taken.update(v.name for v in (*graph.input, *graph.output, *graph.initializer))
            self._taken.update(name for node in graph.node for name in node.output)
            self._taken.update(node.name for node in graph.node)
        self._graph(proto.graph, (), ChainMap())

    def _graph(self, graph: GraphProto, path: Path, scope: ChainMap[str, _Versions]) -> None:
        types = self._types[path]
        for name in (v.name for v in (*graph.input, *graph.initializer)):
            scope[name] = {HALF if (path, name) in self._stored else FLOAT: name}
            if types.get(name) != FLOAT:
                scope[name] = {}
        answers = set() if path else {value.name for value in graph.output}
        fresh: list[NodeProto] = []
        for index, node in enumerate(graph.node):
            key = (path, index)
            half = self._halves.get(key, Halves(frozenset(), frozenset()))
            for name, body in bodies(node):
                self._graph(body, (*path, (index, name)), scope.new_child())
            for position, name in enumerate(node.input):
                if types_of(name, scope) and not (node.op_type == "Cast" and not node.domain):
                    node.input[position] = self._as(
                        fresh, scope, name, HALF if position in half.inputs else FLOAT
                    )
                elif types_of(name, scope):
                    versions = scope[name]
                    node.input[position] = versions.get(FLOAT) or versions[HALF]
            fresh.append(node)
            self._outputs(fresh, node, key, half, scope, answers)
        for value in graph.output:
            if path and types_of(value.name, scope):
                value.name = self._as(fresh, scope, value.name, FLOAT)
        del graph.value_info[:]
        set_nodes(graph, fresh)

    def _outputs(
        self,
        fresh: list[NodeProto],
        node: NodeProto,
        key: NodeKey,
        half: Halves,
        scope: ChainMap[str, _Versions],
        answers: set[str],
    ) -> None:
        path = key[0]
        for position, name in enumerate(node.output):
            if self._types[path].get(name) != FLOAT:
                scope[name] = {}
            elif position in half.outputs or (path, name) in self._stored:
                if node.op_type == "Cast" and not node.domain:
                    node.attribute[[a.name for a in node.attribute].index("to")].i = HALF
                scope[name] = {HALF: name}
                if name in answers:
                    inner = fresh_name(f"{name}/float16", self._taken)
                    node.output[position] = inner
                    fresh.append(cast(inner, name, FLOAT))
                    scope[name] = {HALF: inner, FLOAT: name}
                    self.renamed[name] = inner
            else:
                scope[name] = {FLOAT: name}

    def _as(self, fresh: list[NodeProto], scope: ChainMap[str, _Versions], name: str, wanted: int) -> str:
        versions = scope[name]
        if wanted not in versions:
            copy = fresh_name(f"{name}/{'float16' if wanted == HALF else 'float32'}", self._taken)
            fresh.append(cast(next(iter(versions.values())), copy, wanted))
            versions = scope[name] = {**versions, wanted: copy}  # seen from here on, and in bodies
        return versions[wanted]


def types_of(name: str, scope: Mapping[str, _Versions]) -> bool:
    """Whether a name is a float32 tensor of the graph as it was."""
    return bool(name and scope.get(name))
