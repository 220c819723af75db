"""Operators whose form changed between opsets: constants that were attributes became inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from repobuild.errors import ConversionFailed, evidence
from repobuild.graph.walk import names_used

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
    attributes: dict[str, Any] = dict(constants)
    steps = attributes.pop("steps", ())
    if isinstance(steps, Sequence) and any(step != 1 for step in steps):
        raise ConversionFailed(
            "opset-conversion",
            f"an output takes every n-th element, which opset {opset} has no operator for",
            evidence([f"Slice has steps since opset {INPUTS_SINCE['Slice']}"]),
            "write export: {opset: 13}",
        )
    node = helper.make_node(operator, [source], [target], name=label)
    node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
    return node


def without_dropout(model: ModelProto) -> None:
    """Let Dropout that passes its input on be what it is, an identity, in place.

    ONNX Runtime's own elimination lets the ratio take the place of the data where another node computes the
    ratio and the data come straight from an input (seen in ONNX Runtime 1.32).
    """
    opset = default_opset(model)
    if opset < 7:
        return  # is_test decided
    read = {n for node in model.graph.node for n in names_used(node)} | {o.name for o in model.graph.output}
    for node in model.graph.node:
        if node.op_type != "Dropout" or node.domain not in ("", "ai.onnx"):
            continue
        trains = opset >= 12 and len(node.input) > 2 and node.input[2]
        mask = len(node.output) > 1 and node.output[1] in read
        if trains or mask:
            continue
        node.op_type = "Identity"
        del node.attribute[:]
        del node.input[1:]
        del node.output[1:]
