"""Operators whose form changed between opsets: constants that were attributes became inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from repobuild.errors import ConversionFailed, evidence

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

INPUTS_SINCE = {"Squeeze": 13, "Unsqueeze": 13, "Slice": 10}
"""First opset in which an operator takes its constants as inputs (onnx/onnx, docs/Changelog.md)."""

Constants = Mapping[str, Sequence[int] | int]


def default_opset(model: ModelProto) -> int:
    """The version of the default domain that a model imports, 0 if it imports none."""
    return max((e.version for e in model.opset_import if e.domain in ("", "ai.onnx")), default=0)


def with_constants(
    graph: GraphProto, operator: str, source: str, target: str, constants: Constants, label: str, opset: int
) -> NodeProto:
    """A node that takes a tensor and constant whole numbers, in the form of an opset.

    Constants that are inputs become initialisers of the graph. The node is not put into the graph.

    Args:
        graph: Where the initialisers go.
        operator: Operator of ONNX's default domain.
        source: The tensor.
        target: The result.
        constants: ``{name: numbers}`` in the order of the operator's inputs.
        label: Name of the node, and start of the names of the initialisers.
        opset: Opset of the graph.

    Raises:
        ConversionFailed: The operator had no such constant in that opset.
    """
    import numpy as np
    from onnx import helper, numpy_helper

    if opset >= INPUTS_SINCE.get(operator, 0):
        inputs = [source]
        for key, values in constants.items():
            inputs.append(f"{label}/{key}")
            graph.initializer.append(numpy_helper.from_array(np.array(values, dtype=np.int64), inputs[-1]))
        return helper.make_node(operator, inputs, [target], name=label)
    attributes = dict(constants)
    steps = attributes.pop("steps", ())
    if isinstance(steps, Sequence) and any(step != 1 for step in steps):
        raise ConversionFailed(
            "opset-conversion",
            f"an output takes every n-th element, which opset {opset} has no operator for",
            evidence([f"Slice has steps since opset {INPUTS_SINCE['Slice']}"]),
            "write export: {opset: 13}",
        )
    return helper.make_node(operator, [source], [target], name=label, **attributes)
