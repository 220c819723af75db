"""Finds the first node where an artifact leaves the graph that it was made from.

Transforms keep the names of most tensors (float16 and bfloat16 all of them, see
:mod:`repobuild.transforms.casting`; ONNX Runtime's quantiser and optimisers those that are left), so both
graphs are run with the tensors that they share as outputs, in the order of the reference, and compared. What
fusion removed is stepped over and named as unseen; a tensor that differs while all that is made of it agrees
was only written in another way. Neither graph is optimised while it is looked at, so that each tensor is what
its node makes; if all agree, the answers of the optimised sessions are compared as well.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from repobuild.compare import Comparison, compare
from repobuild.graph.walk import names_used
from repobuild.recipe.types import Bounds, Tolerance
from repobuild.report import Deviation
from repobuild.tensors import Array, Batch
from repobuild.transforms.casting import HALF
from repobuild.transforms.element_types import element_types
from repobuild.transforms.files import GraphFile, opened
from repobuild.transforms.rounding import keep_rounding
from repobuild.transforms.session import ask, open_graph

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

MEMORY = 256 * 2**20
"""Bytes of tensors that are held at a time, as far as single tensors allow."""
FIRST = 8
"""Tensors in the first chunk, before it is known how large they are."""
NAMED = 8
"""Nodes that are named."""


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
        artifact_operator: Operator that makes the tensor in the artifact, after Casts and quantisation.
        unseen: Nodes of the reference between ``agreed`` and the tensor whose own tensors the artifact does
            not have; one of them may be the cause.
    """

    node: str
    operator: str
    tensor: str
    request: int
    worst: Deviation | None
    why: str
    agreed: str
    artifact_operator: str
    unseen: tuple[str, ...]

    def __str__(self) -> str:
        where = f"{self.operator} '{self.node}'" if self.node else "the optimisation by ONNX Runtime"
        other = ""
        if self.artifact_operator and self.artifact_operator != self.operator:
            other = f" (in the artifact, {self.artifact_operator} makes the tensor)"
        how = self.why or str(self.worst)
        before = f"; '{self.agreed}' still agrees" if self.agreed else "; no tensor before it agrees"
        unseen = f"; not seen: {', '.join(self.unseen)}" if self.unseen else ""
        return f"{where}{other}, tensor '{self.tensor}', request {self.request}: {how}{before}{unseen}"


def first_departure(
    reference: Path, artifact: Path, requests: Sequence[Batch], bounds: Bounds | Tolerance
) -> Departure | None:
    """Find the first node, in the reference's order, whose tensor differs in the artifact.

    Args:
        reference: The graph that is right.
        artifact: A graph made from it.
        requests: Whole feeds of both.
        bounds: How far values may lie apart; a tolerance gives its bounds by tensor name.

    Returns:
        The departure; None if all tensors that both have, and all answers, agree.

    Raises:
        ConversionFailed: ONNX Runtime cannot load or run one of the graphs.
    """
    of = bounds.of if isinstance(bounds, Tolerance) else (lambda _: bounds)
    with opened(reference) as left, opened(artifact) as right:
        names = _shared(left.proto.graph, right.proto.graph)
        follow = _Followers(left.proto.graph, names)
        agreed: set[str] = set()
        wrong: dict[str, tuple[int, Comparison]] = {}
        width = FIRST
        while names:
            chunk, names = names[:width], names[width:]
            found, held = _chunk(left, right, chunk, requests, of)
            wrong.update(found)
            agreed.update(name for name in chunk if name not in found)
            for name in list(wrong):
                state = follow.state(name, agreed, wrong)
                if state == "departs":
                    return _departure(left.proto.graph, right.proto.graph, agreed, name, *wrong[name])
                if state == "open":
                    break
                del wrong[name]
            width = max(1, min(MEMORY * len(chunk) // max(held, 1), 4 * width, 256))
        return _optimised(left, right, requests, of)


def _chunk(
    left: GraphFile,
    right: GraphFile,
    names: Sequence[str],
    requests: Sequence[Batch],
    of: Callable[[str], Bounds],
) -> tuple[dict[str, tuple[int, Comparison]], int]:
    """The tensors that differ, with the first request in which they do; and the bytes that a request took."""
    want, got = _Side(left, names), _Side(right, names)
    held = 0
    wrong: dict[str, tuple[int, Comparison]] = {}
    for number, request in enumerate(requests):
        pairs = list(zip(names, want.answers(request), got.answers(request), strict=True))
        held = max(held, sum(_bytes(expected) + _bytes(answer) for _, expected, answer in pairs))
        for name, expected, answer in pairs:
            outcome = None if name in wrong else _compared(name, answer, expected, of(name))
            if outcome is not None:
                wrong[name] = (number, outcome)
    return {name: wrong[name] for name in names if name in wrong}, held


class _Followers:
    """Tells whether a tensor that differs makes a difference.

    An optimiser may write a tensor in another way under its old name, such as a shape with 0 and -1 for the
    axes that stay. If everything that is made of a tensor agrees, nothing can depart there.
    """

    def __init__(self, graph: GraphProto, shared: Sequence[str]) -> None:
        self._shared = set(shared)
        self._answers = {value.name for value in graph.output}
        self._makes: dict[str, list[str]] = {}
        for node in graph.node:
            for name in names_used(node):
                self._makes.setdefault(name, []).extend(n for n in node.output if n)

    def state(
        self, name: str, agreed: AbstractSet[str], wrong: Container[str]
    ) -> Literal["departs", "heals", "open"]:
        """Whether a tensor that differs is a departure, makes no difference, or cannot be told yet."""
        if name in self._answers:
            return "departs"
        waiting, seen, unknown = list(self._makes.get(name, ())), set(), False
        while waiting:
            follower = waiting.pop()
            if follower in seen:
                continue
            seen.add(follower)
            if follower not in self._shared:
                waiting.extend(self._makes.get(follower, ()))
            elif follower in wrong:
                return "departs"
            elif follower not in agreed:
                unknown = True
        return "open" if unknown else "heals"


def _shared(reference: GraphProto, artifact: GraphProto) -> list[str]:
    """The tensors made by the reference's nodes that the artifact has, in the reference's order."""
    there = {name for node in artifact.node for name in node.output if name}
    there |= {tensor.name for tensor in artifact.initializer}
    return [name for node in reference.node for name in node.output if name in there]


class _Side:
    """One of the graphs, with some of its tensors as outputs."""

    def __init__(self, source: GraphFile, names: Sequence[str]) -> None:
        from onnx import ValueInfoProto

        proto = source.copy()
        types = element_types(source)
        if any(HALF in found.values() for found in types.values()):
            keep_rounding(proto, types)
        known = {value.name: value for value in proto.graph.output}
        constants = {tensor.name: tensor for tensor in source.proto.graph.initializer}
        self._names = list(names)
        self._fixed: dict[str, Array] = {n: source.array(constants[n]) for n in names if n in constants}
        asked = [name for name in dict.fromkeys(names) if name not in self._fixed]
        del proto.graph.output[:]
        for name in asked:
            proto.graph.output.append(known[name] if name in known else ValueInfoProto(name=name))
        self._asked = asked
        self._session: Any = open_graph(proto, source) if asked else None

    def answers(self, request: Batch) -> list[Any]:
        """The tensors, in the order asked for."""
        made = (
            {}
            if self._session is None
            else dict(zip(self._asked, ask(self._session, request, self._asked), strict=True))
        )
        return [self._fixed[name] if name in self._fixed else made[name] for name in self._names]


def _compared(name: str, got: Any, want: Any, bounds: Bounds) -> Comparison | None:
    """What is wrong with a tensor, if anything; sequences and maps are left to the tensors made of them."""
    import numpy as np

    if not isinstance(want, np.ndarray) or not isinstance(got, np.ndarray):
        return None
    kinds = [_kind(array) for array in (got, want)]
    if kinds[0] != kinds[1]:
        return Comparison(want.size, want.size, None, f"{got.dtype} values, the reference has {want.dtype}")
    outcome = compare(name, np.atleast_1d(_plain(got)), np.atleast_1d(_plain(want)), bounds)
    return None if outcome.holds else outcome


def _kind(array: Array) -> str:
    """Whether it is text, a float of some width, or counted exactly."""
    if array.dtype.kind in "OUS":
        return "text"
    return "float" if array.dtype.kind not in "biu" else "whole"


def _plain(array: Array) -> Array:
    """float16 and bfloat16 as float32; other types as they are."""
    import numpy as np

    return array if array.dtype.kind in "OUSbiu" or array.dtype.itemsize > 2 else array.astype(np.float32)


def _bytes(value: Any) -> int:
    return int(getattr(value, "nbytes", 0))


def _departure(
    reference: GraphProto,
    artifact: GraphProto,
    agreed: set[str],
    tensor: str,
    request: int,
    outcome: Comparison,
) -> Departure:
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
    return Departure(
        node.name or node.output[0],
        node.op_type,
        tensor,
        request,
        outcome.worst,
        outcome.why,
        near[-1] if near else "",
        _maker(artifact, tensor),
        (*named[:NAMED], *more),
    )


def _maker(artifact: GraphProto, tensor: str) -> str:
    """The operator that makes a tensor, looked for behind Casts and quantisation."""
    makers = {name: node for node in artifact.node for name in node.output}
    passed = ("Cast", "DequantizeLinear", "QuantizeLinear", "Identity")
    first = makers.get(tensor)
    if first is None:
        return "a constant"
    node: NodeProto | None = first
    while node is not None and node.op_type in passed and node.input[0] in makers:
        node = makers[node.input[0]]
    return str((first if node is None or node.op_type in passed else node).op_type)


def _optimised(
    reference: GraphFile, artifact: GraphFile, requests: Sequence[Batch], of: Callable[[str], Bounds]
) -> Departure | None:
    """Compare the answers as the sessions that serve give them."""
    left = open_graph(reference.proto, reference, optimised=True)
    right = open_graph(artifact.proto, artifact, optimised=True)
    names = [output.name for output in left.get_outputs()]
    there = {output.name for output in right.get_outputs()}
    missing = [name for name in names if name not in there]
    if missing:
        return Departure("", "", missing[0], 0, None, "the artifact has no such output", "", "", ())
    for number, request in enumerate(requests):
        answers = zip(names, ask(left, request, names), ask(right, request, names), strict=True)
        for name, want, got in answers:
            outcome = _compared(name, got, want, of(name))
            if outcome is not None:
                return Departure("", "", name, number, outcome.worst, outcome.why, "", "", ())
    return None


def _spoken(node: NodeProto) -> str:
    return f"{node.op_type} '{node.name or node.output[0]}'"
