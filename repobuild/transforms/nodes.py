"""Small changes of graphs that several transforms make."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto


def copied(node: NodeProto) -> NodeProto:
    """The node once more, which outlives the list that it lies in."""
    from onnx import NodeProto

    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def set_nodes(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    """Give a graph other nodes, some of which may be its own."""
    copies = [copied(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def cast(start: str, end: str, to: int) -> NodeProto:
    """A Cast from one tensor to another, of an ONNX element type."""
    from onnx import helper

    return helper.make_node("Cast", [start], [end], name=end, to=to)


def fresh_name(wanted: str, taken: set[str]) -> str:
    """A name that is not taken, as near to the wanted one as can be; it is taken from then on."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name


def opset_of(proto: ModelProto) -> int:
    """The opset of the default domain; 0 if it is not imported."""
    return next((e.version for e in proto.opset_import if e.domain in ("", "ai.onnx")), 0)
