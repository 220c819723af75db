"""Whether a graph is valid, and loads on the releases that it is made for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from repobuild.errors import ConversionFailed, evidence
from repobuild.transforms.interface import Limits

if TYPE_CHECKING:
    from onnx import ModelProto

KNOWN_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
"""Domains of the ONNX standard that limits are known for."""


def check_types(path: Path) -> None:
    """Check an ONNX file against the standard, its external data included.

    Raises:
        ConversionFailed: ``graph-invalid``.
    """
    import onnx

    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as problem:
        raise ConversionFailed(
            "graph-invalid",
            "the transformed graph is not valid ONNX",
            evidence(str(problem).strip().splitlines()[:3]),
            "this is a fault of the transform; leave it out for this model",
        ) from problem


def beyond(proto: ModelProto, limits: Limits) -> list[str]:
    """What of a graph is too new for its limits, in words."""
    known = {"": limits.opset, "ai.onnx.ml": limits.ml_opset}
    wrong = []
    for entry in proto.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if domain in known and entry.version > known[domain]:
            wrong.append(f"opset {entry.version} of {domain or 'ai.onnx'}, at most {known[domain]} loads")
    if proto.ir_version > limits.ir:
        wrong.append(f"IR version {proto.ir_version}, at most {limits.ir} loads")
    return wrong
