"""Finds the first node where an artifact leaves the graph that it was made from.

Transforms keep the names of most tensors (float16 and bfloat16 all of them, see
:mod:`repobuild.transforms.casting`; ONNX Runtime's quantiser and optimisers those that are left), so both
graphs are run with the tensors that they share as outputs, in the order of the reference, and compared. What
fusion removed is stepped over and named as unseen; a tensor that differs while all that is made of it agrees
was only written in another way. Where an artifact reads nothing but a tensor's quantised values, those are
compared, see :func:`repobuild.transforms.departure.as_read`. Neither graph is optimised while it is looked
at, so that each tensor is what its node makes; if all agree, the answers of the optimised sessions are
compared as well.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from repobuild.compare import Comparison, compare
from repobuild.graph.walk import names_used
from repobuild.recipe.types import Bounds, Tolerance
from repobuild.tensors import Array, Batch
from repobuild.transforms.casting import HALF
from repobuild.transforms.departure import Departure, as_read, departure, of_answer
from repobuild.transforms.element_types import element_types
from repobuild.transforms.files import GraphFile, opened
from repobuild.transforms.rounding import keep_rounding
from repobuild.transforms.session import ask, open_graph

if TYPE_CHECKING:
    from onnx import GraphProto

MEMORY = 256 * 2**20
"""Bytes of tensors that are held at a time, as far as single tensors allow."""
FIRST = 8
"""Tensors in the first chunk, before it is known how large they are."""


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
        heard = as_read(right.proto.graph)
        follow = _Followers(left.proto.graph, names)
        agreed: set[str] = set()
        wrong: dict[str, tuple[int, Comparison]] = {}
        width = FIRST
        while names:
            chunk, names = names[:width], names[width:]
            found, held = _chunk(left, right, chunk, heard, requests, of)
            wrong.update(found)
            agreed.update(name for name in chunk if name not in found)
            for name in list(wrong):
                state = follow.state(name, agreed, wrong)
                if state == "departs":
                    graphs = left.proto.graph, right.proto.graph
                    return departure(*graphs, agreed, name, heard.get(name, name), *wrong[name])
                if state == "open":
                    break
                del wrong[name]
            width = max(1, min(MEMORY * len(chunk) // max(held, 1), 4 * width, 256))
        return _optimised(left, right, requests, of)


def _chunk(
    left: GraphFile,
    right: GraphFile,
    names: Sequence[str],
    heard: Mapping[str, str],
    requests: Sequence[Batch],
    of: Callable[[str], Bounds],
) -> tuple[dict[str, tuple[int, Comparison]], int]:
    """The tensors that differ, with the first request in which they do; and the bytes that a request took."""
    want, got = _Side(left, names), _Side(right, [heard.get(n, n) for n in names])
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
        return of_answer(missing[0], 0, None, "the artifact has no such output")
    for number, request in enumerate(requests):
        answers = zip(names, ask(left, request, names), ask(right, request, names), strict=True)
        for name, want, got in answers:
            outcome = _compared(name, got, want, of(name))
            if outcome is not None:
                return of_answer(name, number, outcome.worst, outcome.why)
    return None
