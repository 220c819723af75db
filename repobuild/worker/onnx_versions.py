"""Brings the opset of a file into the range for which ONNX Runtime has operators."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from repobuild.errors import ConversionFailed, Evidence, InputInvalid
from repobuild.graph.walk import all_nodes

if TYPE_CHECKING:
    from onnx import ModelProto

OLDEST_OPSET = 7
"""ONNX Runtime has no older operators (its docs/Versioning.md: "opset 7 and newer")."""


def within_runtime(proto: ModelProto, notes: list[str], given: str) -> ModelProto:
    """The model at an opset that ONNX Runtime runs.

    Older ones are raised by ONNX's converter.

    Args:
        proto: The file; it may be changed in place.
        notes: Gets a note where the opset was raised.
        given: The file as the recipe has it.

    Raises:
        InputInvalid: The opset is older, and ONNX's converter cannot raise it.
    """
    from repobuild.graph.normal import raise_opset
    from repobuild.graph.operators import default_opset

    now = default_opset(proto)
    if not 0 < now < OLDEST_OPSET:
        return proto
    why = _changed_meaning(proto)
    if not why:
        try:
            made = raise_opset(proto, OLDEST_OPSET)
        except ConversionFailed as problem:
            why = "; ".join(e.text for e in problem.evidence)
    if why:
        raise InputInvalid(
            "model-unloadable",
            f"{given} has opset {now}, and ONNX Runtime has operators of opset {OLDEST_OPSET} at least",
            (Evidence(f"ONNX's converter does not raise it: {why}", file=given),),
            "export the model again with a newer opset",
        )
    notes.append(
        f"the file has opset {now}, which ONNX Runtime has no operators for; it was raised to"
        f" {OLDEST_OPSET} by ONNX's converter, and checked against that, not against the file itself"
    )
    return made


def _changed_meaning(proto: ModelProto) -> str:
    """What ONNX's converter leaves as it is though it means something else since opset 7; empty for nothing.

    PRelu took one slope for each channel; since opset 7 its slopes are broadcast from the last axis.
    """
    weights = {t.name: t for t in proto.graph.initializer}
    for node in all_nodes(proto):
        if node.op_type != "PRelu" or node.domain not in ("", "ai.onnx"):
            continue
        slope = weights.get(node.input[1])
        if slope is None or math.prod(slope.dims) != 1:
            return "PRelu has a slope for each channel, which means another thing since"
    return ""


def lowered(proto: ModelProto, notes: list[str]) -> ModelProto | None:
    """The model at the newest opset of a Triton release, where its own is newer and it can be brought there.

    ONNX Runtime guarantees operators only for opsets that were released before it.

    Args:
        proto: The file, left as it is.
        notes: Gets a note where there is one.
    """
    from repobuild.graph.normal import to_opset
    from repobuild.graph.operators import default_opset
    from repobuild.releases import newest

    now, most = default_opset(proto), newest().opset
    if now <= most:
        return None
    copy = type(proto)()
    copy.CopyFrom(proto)
    try:
        made, _ = to_opset(copy, None, most)
    except ConversionFailed:
        return None
    notes.append(
        f"the file has opset {now}, which the installed ONNX Runtime lacks operators of; ONNX's converter"
        f" brought it to {most}, and the model was checked against that, not against the file itself"
    )
    return made
