"""Makes float64 graphs of scikit-learn models load.

ONNX's tree operators answer in float32 whatever they take, and scikit-learn's exporter declares float64
there, so ONNX Runtime refuses the graph; some operators it has for float32 alone. Casts go around them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from repobuild.graph.trees import TREES

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

FLOAT_ONLY = ("SVMRegressor",)
"""Operators that ONNX Runtime has for float32 alone."""


def takers_of_float64(model: ModelProto) -> frozenset[str]:
    """The operators of float32 answers that take float64, by their last output."""
    types = _element_types(model)
    double = _double()
    return frozenset(
        node.output[-1]
        for node in model.graph.node
        if node.op_type in (*TREES, *FLOAT_ONLY) and types.get(node.input[0]) == double
    )


def cast_around(model: ModelProto, takers: frozenset[str], wide: frozenset[str]) -> None:
    """Put casts around operators of float32.

    Args:
        model: A float64 graph; changed in place.
        takers: The operators, see :func:`takers_of_float64`.
        wide: Those of them whose rows stay float64; only their answers are cast.
    """
    fresh: list[NodeProto] = []
    for node in model.graph.node:
        name = node.output[-1]
        if name not in takers:
            fresh.append(node)
            continue
        if name not in wide:
            fresh.append(_cast(node.input[0], f"{name}/rows32", to_double=False))
            node.input[0] = f"{name}/rows32"
        node.output[len(node.output) - 1] = f"{name}/answer32"
        fresh.extend((node, _cast(f"{name}/answer32", name, to_double=True)))
    copies = [_copy(n) for n in fresh]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    for value in model.graph.output:
        if value.name in takers:
            value.type.tensor_type.elem_type = _double()


def _element_types(model: ModelProto) -> dict[str, int]:
    """ONNX element types of the tensors, as ONNX's own inference finds them; nothing declared is believed."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    for value in copy.graph.output:
        value.ClearField("type")
    graph: GraphProto = onnx.shape_inference.infer_shapes(copy, strict_mode=False).graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info, *graph.output)}
    types.update({t.name: t.data_type for t in graph.initializer})
    return types


def _cast(start: str, end: str, *, to_double: bool) -> NodeProto:
    from onnx import TensorProto, helper

    return helper.make_node(
        "Cast", [start], [end], name=end, to=TensorProto.DOUBLE if to_double else TensorProto.FLOAT
    )


def _double() -> int:
    from onnx import TensorProto

    return int(TensorProto.DOUBLE)


def _copy(node: NodeProto) -> NodeProto:
    from onnx import NodeProto

    copy = NodeProto()
    copy.CopyFrom(node)
    return copy
