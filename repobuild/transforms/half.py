"""float16: half the bytes, and arithmetic in float16 wherever the values allow it.

Why not ``onnxruntime.transformers.float16``: tried in 1.32, it appends its Casts behind the nodes that read
them (ONNX's checker refuses that), casts inside the outermost graph what a body of If or Loop needs, fails on
two bodies with an initialiser of one name, takes Constants written as ``value_float`` for float16, lifts
every weight below 6e-8 to 6e-8, cuts what is too large to 65504, and holds all weights in memory. Its table
of operators without kernels is used, see :mod:`repobuild.transforms.halvable`.

Which nodes stay float32:

- those that have no float16 form at the graph's opset, by ONNX's own schemas;
- those that make or read a tensor of which a value is above 65504, or of which all values round to zero, on
  any of the requests; and those that read a weight of that kind;
- those that make or read whole numbers above 2048, which float16 does not hold (positions, lengths);
- after the graph was made and run, with all values rounded as in :mod:`repobuild.transforms.rounding`: those
  that make NaN or infinity where the float32 graph does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from repobuild.errors import ConversionFailed, InputInvalid, evidence
from repobuild.graph.walk import names_used
from repobuild.runners.onnxruntime import open_session
from repobuild.tensors import Batch
from repobuild.transforms.casting import FLOAT, HALF, NodeKey, Readers, Rewriter, TensorKey, readers
from repobuild.transforms.checking import check_types
from repobuild.transforms.element_types import Types, bodies, element_types, graphs
from repobuild.transforms.files import SMALL, GraphFile, Writer, opened, size_of
from repobuild.transforms.halvable import Halves, Operators
from repobuild.transforms.interface import Applied
from repobuild.transforms.measure import Range, measure
from repobuild.transforms.rounding import keep_rounding
from repobuild.transforms.tools import tool
from repobuild.transforms.weights import FAINTEST, LARGEST, extent, float_weights

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

WHOLE = 2048.0
"""Largest whole number up to which float16 holds all (2^11, IEEE 754-2008)."""
ROUNDS = 16
"""How often nodes may be found to overflow after the graph was made."""
LOWEST_OPSET = 11
"""The first opset with what the measurements need."""
NAMED = 12
"""Nodes that a note names."""


class Half:
    """Computes in float16 where the values allow it, and stores those weights in float16."""

    name = "fp16"

    def apply(self, model: Path, requests: Sequence[Batch], to: Path) -> Applied:
        """See :meth:`repobuild.transforms.interface.Transform.apply`.

        Raises:
            ConversionFailed: ``nothing-to-convert``: no node takes float16; or the result does not load.
            InputInvalid: ``samples-needed``: there are no requests.
        """
        if not requests:
            raise InputInvalid(
                "samples-needed",
                "without requests, it cannot be seen which values overflow float16",
                (),
                "name samples in the recipe",
            )
        before = size_of(model)
        with opened(model) as source:
            _demand_opset(source.proto)
            weights = dict(float_weights(source.proto))
            types = element_types(source)
            plan = _Plan(source.proto, types)
            flushed = _refuse_weights(plan, source)
            ranges = measure(source, types, requests)
            _refuse_values(plan, ranges)
            for _ in range(ROUNDS):
                plan.demand_something(len(weights))
                stored, renamed = _write(source, plan, types, to)
                broken = _broken(to, renamed, ranges, requests)
                if not broken:
                    break
                for name in broken:
                    plan.keep_behind(((), name), "is NaN or infinite in float16 alone")
            else:
                raise ConversionFailed(
                    "precision-unfit",
                    "the float16 graph still makes NaN or infinity after nodes were left in float32",
                    evidence(broken[:NAMED]),
                    "keep this model in float32, or try bf16",
                )
        check_types(to)
        open_session(to)
        after = size_of(to)
        notes = [*plan.notes(), *flushed]
        if after.bytes >= before.bytes:
            notes.append(f"the file did not get smaller: {before.bytes} bytes before, {after.bytes} after")
        return Applied(
            f"{len(plan.halves)} of {plan.floats} float32 nodes compute in float16, "
            f"{len(stored)} of {len(weights)} weights are stored in float16",
            tuple(notes),
            (tool("onnx"), tool("onnxruntime")),
            before,
            after,
        )


@dataclass(slots=True)
class _Kept:
    """A node that stays float32, and why."""

    node: str
    why: str
    forced: bool


class _Plan:
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
            self.kept[key] = _Kept(_spoken(node, key), found, forced=False)

    def keep(self, key: NodeKey, why: str) -> None:
        """Leave a node in float32."""
        if self.halves.pop(key, None) is not None:
            self.kept[key] = _Kept(_spoken(self.nodes[key], key), why, forced=True)

    def keep_behind(self, tensor: TensorKey, why: str) -> None:
        """Leave in float32 what a tensor comes from: its makers, or else the nearest that are still float16.

        NaN may come of values that were rounded long before, as 1 / (a - b) does.
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
        forced = [kept for kept in self.kept.values() if kept.forced]
        if forced:
            named = "; ".join(f"{kept.node}: {kept.why}" for kept in forced[:NAMED])
            more = f"; and {len(forced) - NAMED} more" if len(forced) > NAMED else ""
            notes.append(f"{len(forced)} nodes stay float32 for their values: {named}{more}")
        counted: dict[str, int] = {}
        for kept in self.kept.values():
            if not kept.forced:
                counted[kept.why] = counted.get(kept.why, 0) + 1
        if counted:
            said = "; ".join(f"{why} ({count})" for why, count in sorted(counted.items()))
            notes.append(f"nodes that stay float32 for their operator: {said}")
        return notes


_INTEGERS = frozenset(range(2, 8)) | {12, 13}
"""``TensorProto`` numbers of the integer types of 8 to 64 bits."""


def _demand_opset(proto: ModelProto) -> None:
    opset = next((e.version for e in proto.opset_import if e.domain in ("", "ai.onnx")), 0)
    if opset < LOWEST_OPSET:
        raise ConversionFailed(
            "opset-conversion",
            f"float16 needs opset {LOWEST_OPSET}, the graph has {opset}",
            evidence(["with older operators, float16 cannot be measured"]),
            f"write export: {{opset: {LOWEST_OPSET}}} or higher",
        )


def _refuse_weights(plan: _Plan, source: GraphFile) -> list[str]:
    """Keep the readers of weights that float16 cannot hold; tells of single values that it loses."""
    lost, tensors = 0, 0
    for key, tensor in float_weights(source.proto):
        found = extent(source.array(tensor))
        if found.why_not_half:
            for reader, _ in plan.readers.nodes.get(key, ()):
                plan.keep(reader, f"its weight '{key[1]}' {found.why_not_half}")
        elif found.lost:
            lost, tensors = lost + found.lost, tensors + 1
    return [f"{lost} values of {tensors} weights round to zero in float16"] if lost else []


def _refuse_values(plan: _Plan, ranges: Mapping[TensorKey, Range]) -> None:
    for key, seen in ranges.items():
        if seen.largest > LARGEST:
            plan.keep_around(key, f"reaches {seen.largest:.4g}, float16 ends at {LARGEST:.0f}")
        elif 0 < seen.faintest <= FAINTEST:
            plan.keep_around(key, f"stays below {seen.faintest:.4g}, which float16 rounds to zero")
        elif seen.largest > WHOLE and plan.maker_takes_whole_numbers(key):
            plan.keep_around(key, f"holds whole numbers up to {seen.largest:.0f}, float16 up to 2048")


def _write(
    source: GraphFile, plan: _Plan, types: Types, to: Path
) -> tuple[AbstractSet[TensorKey], Mapping[str, str]]:
    import numpy as np

    proto = source.copy()
    stored = {key for key, tensor in float_weights(proto) if _stored_as_half(key, tensor, plan, proto)}
    rewriter = Rewriter(types, plan.halves, stored)
    with Writer(source, to) as writer:
        for key, tensor in float_weights(proto):
            if key in stored:
                writer.put(tensor, source.array(tensor).astype(np.float16), HALF)
        rewriter.rewrite(proto)
        writer.finish(proto)
    return stored, rewriter.renamed


def _stored_as_half(key: TensorKey, tensor: object, plan: _Plan, proto: ModelProto) -> bool:
    """Whether a weight is stored in float16: if a node wants it so, and no interface holds it.

    One that nodes of both kinds read is stored once, in float16 unless it is small.
    """
    from onnx import TensorProto

    assert isinstance(tensor, TensorProto)
    path, name = key
    if key in plan.readers.outputs or (not path and name in {v.name for v in proto.graph.input}):
        return False
    wants = {
        key in plan.halves and position in plan.halves[key].inputs
        for key, position in plan.readers.nodes.get(key, ())
        if plan.nodes[key].op_type != "Cast"
    }
    if wants == {True, False}:
        return 4 * int(np_prod(tensor.dims)) > SMALL
    return wants == {True}


def np_prod(dims: Sequence[int]) -> int:
    """The number of elements of a shape."""
    import math

    return math.prod(dims)


def _broken(
    to: Path, renamed: Mapping[str, str], ranges: Mapping[TensorKey, Range], requests: Sequence[Batch]
) -> list[str]:
    """Tensors that are NaN or infinite in more places than in float32, in the order of the graph."""
    with opened(to) as result:
        keep_rounding(result.proto, element_types(result))
        seen = measure(result, element_types(result), requests)
    original = {new: old for old, new in renamed.items()}
    broken: list[str] = []
    for (path, name), found in seen.items():
        known = ranges.get(((), original.get(name, name)))
        if not path and known is not None and found.broken > known.broken:
            broken.append(original.get(name, name))
    return broken[:1]  # what lies behind it follows from it


def _spoken(node: NodeProto, key: NodeKey) -> str:
    name = node.name or (node.output[0] if node.output else str(key[1]))
    return f"{node.op_type} '{name}'"
