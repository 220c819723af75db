"""Where an artifact leaves the graph that it was made from, in nodes that a reader finds in either graph."""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repobuild.compare import Comparison
from repobuild.graph.walk import names_used
from repobuild.report import Deviation

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

NAMED = 8
"""Nodes that are named."""
_PASSED = ("Cast", "DequantizeLinear", "QuantizeLinear", "Identity")
"""Operators behind which the node is looked for that makes a value."""


@dataclass(frozen=True, slots=True)
class Departure:
    """Where an artifact leaves its reference.

    Attributes:
        node: Name of the reference's node (of its first output, if it has none); empty if the graphs agree
            node by node, and only ONNX Runtime's own optimisation of the artifact makes the difference.
        operator: Its operator.
        tensor: The tensor that differs.
        request: Index of the request.
        worst: The element that is furthest off; None if the tensors cannot be compared.
        why: Why they cannot be compared, such as other shapes; empty otherwise.
        agreed: The nearest tensor before it, on the way from the inputs, that still agrees; empty if there
            is none.
        artifact_node: Name of the node that makes the tensor in the artifact, looked for behind Casts and
            quantisation; empty for a constant.
        artifact_operator: Its operator.
        artifact_tensor: What the tensor is compared with in the artifact.
        unseen: Nodes of the reference between ``agreed`` and the tensor whose own tensors the artifact does
            not have; one of them may be the cause.
        fused: Whether the artifact's node alone stands for all of ``unseen`` and the reference's node.
    """

    node: str
    operator: str
    tensor: str
    request: int
    worst: Deviation | None
    why: str
    agreed: str
    artifact_node: str
    artifact_operator: str
    artifact_tensor: str
    unseen: tuple[str, ...]
    fused: bool

    def __str__(self) -> str:
        tensor = f"tensor '{self.tensor}'"
        if self.artifact_tensor != self.tensor:
            tensor += f" ('{self.artifact_tensor}' in the artifact)"
        how = self.why or str(self.worst)
        before = f"; '{self.agreed}' still agrees" if self.agreed else "; no tensor before it agrees"
        seen = self.fused or not self.unseen
        unseen = "" if seen else f"; not seen: {', '.join(self.unseen)}"
        return f"{self._where()}, {tensor}, request {self.request}: {how}{before}{unseen}"

    def _where(self) -> str:
        """The artifact's node, and what it is compared with, where that is another one."""
        if not self.node:
            return "the optimisation by ONNX Runtime"
        reference = _named(self.operator, self.node)
        if (self.artifact_operator, self.artifact_node) == (self.operator, self.node):
            return reference
        there = _named(self.artifact_operator, self.artifact_node) if self.artifact_node else "a constant"
        parts = (*self.unseen, reference)
        fused = f" (fused from {', '.join(parts[:-1])} and {parts[-1]})" if self.fused else ""
        return f"{there} of the artifact{fused}, compared with {reference} of the exported graph"


def of_answer(tensor: str, request: int, worst: Deviation | None, why: str) -> Departure:
    """A departure of an answer alone, while all nodes agree."""
    return Departure("", "", tensor, request, worst, why, "", "", "", tensor, (), False)


def as_read(artifact: GraphProto) -> dict[str, str]:
    """The tensors that a graph goes on with only after they were quantised, and the tensor that it reads.

    A quantiser drops a ReLU where the QuantizeLinear behind it cuts off what is below zero, and gives its
    tensor to the node before: only what comes out of the DequantizeLinear is then what the ReLU made.
    """
    readers: dict[str, list[NodeProto]] = {}
    for node in artifact.node:
        for name in names_used(node):
            readers.setdefault(name, []).append(node)
    answers = {value.name for value in artifact.output}
    found = {}
    for name, nodes in readers.items():
        if name in answers or any(n.op_type != "QuantizeLinear" or n.input[0] != name for n in nodes):
            continue
        outward = [o for n in nodes for o in readers.get(n.output[0], ())]
        whole = not any(n.output[0] in answers for n in nodes)
        if len(nodes) == 1 and whole and outward and all(o.op_type == "DequantizeLinear" for o in outward):
            found[name] = outward[0].output[0]
    return found


def departure(
    reference: GraphProto,
    artifact: GraphProto,
    agreed: AbstractSet[str],
    tensor: str,
    artifact_tensor: str,
    request: int,
    outcome: Comparison,
) -> Departure:
    """Describe a tensor that differs.

    Args:
        reference: The graph that is right.
        artifact: The graph made from it.
        agreed: Tensors of the reference that agree.
        tensor: The tensor, made by a node of the reference.
        artifact_tensor: What it was compared with.
        request: Index of the request.
        outcome: What is wrong with it.
    """
    makers = {name: node for node in reference.node for name in node.output}
    node = makers[tensor]
    order = {name: at for at, n in enumerate(reference.node) for name in n.output}
    inputs = {value.name for value in reference.input}
    unseen: list[str] = []
    near: list[str] = []
    seen: set[str] = set()
    waiting = list(names_used(node))
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in agreed or name in inputs:
            near.append(name)
        elif name in makers:
            unseen.append(name)
            waiting.extend(names_used(makers[name]))
    near.sort(key=lambda name: order.get(name, -1))
    steps = sorted({order[name] for name in unseen})
    named = tuple(_spoken(reference.node[at]) for at in steps if reference.node[at].op_type != "Constant")
    more = (f"and {len(named) - NAMED} more",) if len(named) > NAMED else ()
    made = _maker(artifact, tensor)
    return Departure(
        node=_name(node),
        operator=node.op_type,
        tensor=tensor,
        request=request,
        worst=outcome.worst,
        why=outcome.why,
        agreed=near[-1] if near else "",
        artifact_node=_name(made) if made is not None else "",
        artifact_operator=made.op_type if made is not None else "",
        artifact_tensor=artifact_tensor,
        unseen=(*named[:NAMED], *more),
        fused=bool(named) and made is not None and _alone(artifact, made, {*near, *inputs}),
    )


def _maker(artifact: GraphProto, tensor: str) -> NodeProto | None:
    """The node that makes a tensor, looked for behind Casts and quantisation; None for a constant."""
    makers = {name: node for node in artifact.node for name in node.output}
    first = makers.get(tensor)
    node = first
    while node is not None and node.op_type in _PASSED and node.input[0] in makers:
        node = makers[node.input[0]]
    return first if node is None or node.op_type in _PASSED else node


def _alone(artifact: GraphProto, made: NodeProto, near: Container[str]) -> bool:
    """Whether nothing but Casts, quantisation and constants lies between a node and tensors that agree."""
    makers = {name: node for node in artifact.node for name in node.output}
    waiting, seen = list(names_used(made)), set()
    while waiting:
        name = waiting.pop()
        node = makers.get(name)
        if name in near or name in seen or node is None or node.op_type == "Constant":
            continue
        seen.add(name)
        if node.op_type not in _PASSED:
            return False
        waiting.extend(names_used(node))
    return True


def _name(node: NodeProto) -> str:
    return node.name or node.output[0]


def _named(operator: str, name: str) -> str:
    return f"{operator} '{name}'"


def _spoken(node: NodeProto) -> str:
    return _named(node.op_type, _name(node))
