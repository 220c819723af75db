"""Transposes of the batch axis in front of MatMul, on which ONNX Runtime crashes if a Cast lies between them.

ONNX Runtime's MatmulTransposeFusion (from level ``ORT_ENABLE_EXTENDED`` on; seen in 1.32) brings a Transpose
that moves axis 0 to the end or before the last axis past the Cast behind it, then finds that it cannot be
fused with a MatMul whose other operand has two axes, and works on with nodes that are gone: the process ends
with a segmentation fault, or not, by what else is optimised. The CPU provider has no float16 MatMul, so
there such a Cast is put in for every float16 MatMul; transformer encoders of PyTorch, which compute with the
sequence first, hold the pattern once a layer.

A product with a matrix does not care in which order its rows come, so the Transpose goes behind the MatMul
where it moves rows alone. Otherwise both nodes compute in float32, between which no Cast is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from repobuild.graph.walk import names_used
from repobuild.transforms.casting import NodeKey
from repobuild.transforms.element_types import graphs
from repobuild.transforms.halving import CRASHES, Plan
from repobuild.transforms.nodes import copied, fresh_name, set_nodes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

LOWEST_RANK = 3
WHY = "no Cast may lie between a Transpose of the batch axis and MatMul"


def keep_crashing(plan: Plan, proto: ModelProto) -> None:
    """Leave in float32 what would crash and cannot be put in another order."""
    matrices = {path: _matrices(graph) for path, graph in graphs(proto.graph)}
    for key, node in plan.nodes.items():
        if not _moves_batch(node):
            continue
        path = key[0]
        for reader, position in plan.readers.nodes.get((path, node.output[0]), ()):
            other = plan.nodes[reader]
            if other.op_type != "MatMul" or other.domain not in ("", "ai.onnx"):
                continue
            both = key in plan.halves and reader in plan.halves
            known = {name for at in range(len(path) + 1) for name in matrices[path[:at]]}
            if both and reader[0] == path and position == 0 and _moves_rows(node) and other.input[1] in known:
                continue
            _keep_both(plan, key, reader)


def _keep_both(plan: Plan, transpose: NodeKey, product: NodeKey) -> None:
    plan.keep(transpose, WHY, CRASHES)
    plan.keep(product, WHY, CRASHES)


def put_behind(proto: ModelProto) -> int:
    """Put Transposes of rows behind the products with a matrix that they feed.

    Args:
        proto: A graph, changed in place. Products keep the names of their outputs.

    Returns:
        How many products were changed.
    """
    taken = {v.name for _, g in graphs(proto.graph) for v in (*g.input, *g.output, *g.initializer)}
    taken.update(name for _, g in graphs(proto.graph) for n in g.node for name in (n.name, *n.output))
    changed = 0
    outer: dict[tuple[object, ...], set[str]] = {}
    for path, graph in list(graphs(proto.graph)):
        outer[path] = _matrices(graph) | (outer[path[:-1]] if path else set())
        changed += _put_behind(graph, outer[path], taken)
    return changed


def _put_behind(graph: GraphProto, matrices: set[str], taken: set[str]) -> int:
    makers: dict[str, NodeProto] = {}
    fresh: list[NodeProto] = []
    changed = 0
    for node in graph.node:
        before = makers.get(node.input[0]) if node.op_type == "MatMul" and not node.domain else None
        if before is None or not _moves_rows(before) or node.input[1] not in matrices:
            fresh.append(node)
            makers.update(dict.fromkeys(node.output, node))
            continue
        product, transpose = copied(node), copied(before)
        inner = fresh_name(f"{node.output[0]}/rows", taken)
        product.input[0], product.output[0] = before.input[0], inner
        transpose.input[0], transpose.output[0] = inner, node.output[0]
        transpose.name = fresh_name(f"{node.name or node.output[0]}/transposed", taken)
        fresh += [product, transpose]
        makers[transpose.output[0]] = transpose
        changed += 1
    if changed:
        _drop_unread(graph, fresh)
    return changed


def _drop_unread(graph: GraphProto, fresh: list[NodeProto]) -> None:
    """Set the nodes of a graph without the Transposes that nothing reads any more."""
    read = {value.name for value in graph.output}
    for node in fresh:
        read.update(names_used(node))
    set_nodes(graph, [n for n in fresh if n.op_type != "Transpose" or n.output[0] in read])


def _matrices(graph: GraphProto) -> set[str]:
    """Names of what has two axes for sure: weights, and their Casts."""
    names = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 2}
    names.update(n.output[0] for n in graph.node if n.op_type == "Cast" and n.input[0] in names)
    return names


def _moves_batch(node: NodeProto) -> bool:
    """Whether a Transpose takes axis 0 to the end or before the last axis, and no other out of order."""
    order = _order(node)
    rank = len(order)
    rest = list(range(1, rank))
    return rank >= LOWEST_RANK and order in ([*rest, 0], [*rest[:-1], 0, rank - 1])


def _moves_rows(node: NodeProto) -> bool:
    """Whether it leaves the last axis where it is."""
    return _moves_batch(node) and _order(node)[-1] != 0


def _order(node: NodeProto) -> list[int]:
    if node.op_type != "Transpose" or node.domain not in ("", "ai.onnx"):
        return []
    attributes: Mapping[str, list[int]] = {a.name: list(a.ints) for a in node.attribute}
    return attributes.get("perm", [])
