"""Walks and renames ONNX graphs, the graphs inside control-flow nodes included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


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
