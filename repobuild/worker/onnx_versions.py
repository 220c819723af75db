"""Brings the opset of a file into the range for which ONNX Runtime has operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repobuild.errors import ConversionFailed, Evidence, InputInvalid

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
    from repobuild.graph.external import external_tensors
    from repobuild.graph.normal import raise_opset
    from repobuild.graph.operators import default_opset

    now = default_opset(proto)
    if not 0 < now < OLDEST_OPSET:
        return proto
    why = "its external data would be lost" if any(external_tensors(proto)) else ""
    if not why:
        try:
            made = raise_opset(_listed(proto), OLDEST_OPSET)
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
        f"the file has opset {now}, which ONNX Runtime has no operators for; it was raised to {OLDEST_OPSET} by"
        " ONNX's converter, and checked against that, not against the file itself"
    )
    return made


def _listed(proto: ModelProto) -> ModelProto:
    """IR 3 wants every initialiser among the inputs; the converter gives them shapes from there."""
    return proto
