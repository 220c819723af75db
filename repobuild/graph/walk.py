"""Walks and renames ONNX graphs, the graphs inside control-flow nodes included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto


def rename(graph: GraphProto, moved: Mapping[str, str]) -> None:
    """Rename tensors everywhere, except graph inputs: ``{name: new name}``."""
    for tensor in graph.initializer:
        tensor.name = moved.get(tensor.name, tensor.name)
    for node in graph.node:
        node.input[:] = [moved.get(n, n) for n in node.input]
        node.output[:] = [moved.get(n, n) for n in node.output]
        for inner in subgraphs(node):
            rename(inner, moved)
            for value in inner.output:
                value.name = moved.get(value.name, value.name)


def rename_inputs(graph: GraphProto, names: Sequence[str]) -> None:
    """Give the graph's inputs their names back, in order; exporters change those that are no identifiers.

    Raises:
        ValueError: The graph has another number of inputs, or one of the names is taken.
    """
    now = [value.name for value in graph.input]
    if now == list(names):
        return
    produced = {o for node in graph.node for o in node.output} | {t.name for t in graph.initializer}
    moved = {old: new for old, new in zip(now, names, strict=True) if old != new}
    if len(set(names)) != len(names) or produced & set(moved.values()):
        raise ValueError(f"the inputs {', '.join(now)} cannot be named {', '.join(names)}")
    rename(graph, moved)
    for value, name in zip(graph.input, names, strict=True):
        value.name = name


def names_used(node: NodeProto) -> Iterator[str]:
    """The tensors that a node reads, from inside its subgraphs too."""
    yield from node.input
    for inner in subgraphs(node):
        for child in inner.node:
            yield from names_used(child)
        yield from (o.name for o in inner.output)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Every node of a model, in subgraphs and local functions too."""
    for node in (*model.graph.node, *(n for f in model.functions for n in f.node)):
        yield from _with_inner(node)


def _with_inner(node: NodeProto) -> Iterator[NodeProto]:
    yield node
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from _with_inner(inner)
