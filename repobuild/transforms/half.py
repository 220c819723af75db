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
  that make NaN or infinity where the float32 graph does not;
- those on which ONNX Runtime would crash, see :mod:`repobuild.transforms.batch_transposes` and
  :mod:`repobuild.transforms.probe`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING

from repobuild.errors import ConversionFailed, InputInvalid, evidence
from repobuild.tensors import Batch
from repobuild.transforms.batch_transposes import keep_crashing, put_behind
from repobuild.transforms.casting import HALF, Rewriter, TensorKey
from repobuild.transforms.checking import check_types
from repobuild.transforms.element_types import Types, element_types
from repobuild.transforms.files import SMALL, GraphFile, opened, size_of
from repobuild.transforms.halving import Plan
from repobuild.transforms.interface import Applied
from repobuild.transforms.measure import Range, measure
from repobuild.transforms.nodes import opset_of
from repobuild.transforms.probe import crashes, keep_culprits
from repobuild.transforms.rounding import keep_rounding
from repobuild.transforms.tools import tool
from repobuild.transforms.weights import FAINTEST, LARGEST, extent, float_weights
from repobuild.transforms.writing import Writer, all_or_nothing
from repobuild.worker.onnx_session import open_session

if TYPE_CHECKING:
    from onnx import ModelProto

WHOLE = 2048.0
"""Largest whole number up to which float16 holds all (2^11, IEEE 754-2008)."""
ROUNDS = 16
"""How often nodes may be found to overflow after the graph was made."""
LOWEST_OPSET = 11
"""The first opset with what the measurements need."""


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
        with opened(model) as source, all_or_nothing(to):
            _demand_opset(source.proto)
            weights = dict(float_weights(source.proto))
            types = element_types(source)
            plan = Plan(source.proto, types)
            flushed = _refuse_weights(plan, source)
            ranges = measure(source, types, requests)
            _refuse_values(plan, ranges)
            for _ in range(ROUNDS):
                keep_crashing(plan, source.proto)
                plan.demand_something(len(weights))
                stored, renamed = _write_loading(source, plan, types, to)
                plan.demand_something(len(weights))
                broken = _broken(to, renamed, ranges, requests)
                if not broken:
                    break
                if not plan.keep_behind(((), broken), "is NaN or infinite in float16 alone"):
                    break
            if broken:
                raise ConversionFailed(
                    "precision-unfit",
                    "the float16 graph still makes NaN or infinity after nodes were left in float32",
                    evidence([f"'{broken}' is NaN or infinite in float16 alone"]),
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


def _demand_opset(proto: ModelProto) -> None:
    opset = opset_of(proto)
    if opset < LOWEST_OPSET:
        raise ConversionFailed(
            "opset-conversion",
            f"float16 needs opset {LOWEST_OPSET}, the graph has {opset}",
            evidence(["with older operators, float16 cannot be measured"]),
            f"write export: {{opset: {LOWEST_OPSET}}} or higher",
        )


def _refuse_weights(plan: Plan, source: GraphFile) -> list[str]:
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


def _refuse_values(plan: Plan, ranges: Mapping[TensorKey, Range]) -> None:
    for key, seen in ranges.items():
        if seen.largest > LARGEST:
            plan.keep_around(key, f"reaches {seen.largest:.4g}, float16 ends at {LARGEST:.0f}")
        elif 0 < seen.faintest <= FAINTEST:
            plan.keep_around(key, f"stays below {seen.faintest:.4g}, which float16 rounds to zero")
        elif seen.largest > WHOLE and plan.maker_takes_whole_numbers(key):
            plan.keep_around(key, f"holds whole numbers up to {seen.largest:.0f}, float16 up to 2048")


def _write_loading(
    source: GraphFile, plan: Plan, types: Types, to: Path
) -> tuple[AbstractSet[TensorKey], Mapping[str, str]]:
    """Write the graph, with nodes in float32 on which ONNX Runtime would crash."""
    made = [_write(source, plan, types, to)]
    keep_culprits(plan, lambda: made.append(_write(source, plan, types, to)), lambda: crashes(to))
    return made[-1]


def _write(
    source: GraphFile, plan: Plan, types: Types, to: Path
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
        put_behind(proto)
        writer.finish(proto)
    return stored, rewriter.renamed


def _stored_as_half(key: TensorKey, tensor: object, plan: Plan, proto: ModelProto) -> bool:
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
        return bool(4 * math.prod(tensor.dims) > SMALL)
    return wants == {True}


def _broken(
    to: Path, renamed: Mapping[str, str], ranges: Mapping[TensorKey, Range], requests: Sequence[Batch]
) -> str:
    """The first tensor that is NaN or infinite in more places than in float32; empty if there is none."""
    with opened(to) as result:
        keep_rounding(result.proto, element_types(result))
        seen = measure(result, element_types(result), requests)
    original = {new: old for old, new in renamed.items()}
    for (path, name), found in seen.items():
        known = ranges.get(((), original.get(name, name)))
        if not path and known is not None and found.broken > known.broken:
            return original.get(name, name)  # what lies behind it follows from it
    return ""
