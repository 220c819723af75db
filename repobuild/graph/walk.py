"""Walks and renames ONNX graphs, the graphs inside control-flow nodes included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto


def rename(graph: GraphProto, moved: Mapping[str, str]) -> None:
    """Rename tensors everywhere, except graph inputs: ``{name: new name}``.

    A graph inside that defines one of the names itself means its own, and keeps it.
    """
    for tensor in graph.initializer:
        tensor.name = moved.get(tensor.name, tensor.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = moved.get(sparse.values.name, sparse.values.name)
    for note in graph.quantization_annotation:
        note.tensor_name = moved.get(note.tensor_name, note.tensor_name)
    for node in graph.node:
        node.output[:] = [moved.get(n, n) for n in node.output]
    read_from(graph, moved)


def read_from(graph: GraphProto, moved: Mapping[str, str]) -> None:
    """Let all nodes that read one tensor read another, in the graphs inside too: ``{name: new name}``."""
    for node in graph.node:
        node.input[:] = [moved.get(n, n) for n in node.input]
        for inner in subgraphs(node):
            own = defined(inner)
            outer = {old: new for old, new in moved.items() if old not in own}
            read_from(inner, outer)
            for value in inner.output:
                value.name = outer.get(value.name, value.name)


def defined(graph: GraphProto) -> set[str]:
    """The tensors that a graph itself defines, those of graphs inside left out."""
    return {
        *(v.name for v in graph.input),
        *(t.name for t in graph.initializer),
        *(s.values.name for s in graph.sparse_initializer),
        *(o for node in graph.node for o in node.output if o),
    }


def names_within(graph: GraphProto) -> set[str]:
    """All names that a graph and the graphs inside it define or read."""
    found = defined(graph)
    for node in graph.node:
        found.update(node.input)
        for inner in subgraphs(node):
            found |= names_within(inner)
    return found


def fresh_label(graph: GraphProto, wanted: str) -> str:
    """A name for a new node, under which nothing of the graph lies, as near to the wanted one as can be.

    Neither a tensor nor a node is called so or begins with it and a slash, so that the node's constants may.
    A graph that this package made earlier has the wanted names already.
    """
    taken = names_within(graph) | _node_names(graph)
    label, number = wanted, 1
    while label in taken or any(name.startswith(f"{label}/") for name in taken):
        number += 1
        label = f"{wanted}_{number}"
    return label


def _node_names(graph: GraphProto) -> set[str]:
    inner = (_node_names(g) for node in graph.node for g in subgraphs(node))
    return {node.name for node in graph.node}.union(*inner)


def rename_inputs(graph: GraphProto, names: Sequence[str]) -> None:
    """Give the graph's inputs their names back, in order; exporters change those that are no identifiers.

    Raises:
        ValueError: The graph has another number of inputs, or one of the names is taken.
    """
    now = [value.name for value in graph.input]
    if now == list(names):
        return
    moved = {old: new for old, new in zip(now, names, strict=True) if old != new}
    taken = names_within(graph) - set(now)
    if len(set(names)) != len(names) or taken & set(moved.values()):
        raise ValueError(f"the inputs {', '.join(now)} cannot be named {', '.join(names)}")
    aside = {old: _fresh(f"input/{index}", taken) for index, old in enumerate(moved)}
    rename(graph, aside)
    rename(graph, {aside[old]: new for old, new in moved.items()})
    for value, name in zip(graph.input, names, strict=True):
        value.name = name


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


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
