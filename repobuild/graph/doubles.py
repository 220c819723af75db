"""Makes float64 graphs of scikit-learn models load.

ONNX's tree operators answer in float32 whatever they take, and scikit-learn's exporter declares float64
there, so ONNX Runtime refuses the graph; some operators it has for float32 alone. Casts go around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from repobuild.graph.trees import TREES
from repobuild.tensors import Array

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

FLOAT_ONLY = ("SVMRegressor",)
"""Operators that ONNX Runtime has for float32 alone."""


def takers_of_float64(model: ModelProto) -> frozenset[str]:
    """The operators of float32 answers that take float64, by their last output."""
    types = element_types(model)
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


def widen_imputers(model: ModelProto, statistics: Sequence[Array]) -> None:
    """Replace imputers of float64, which ONNX Runtime does not have, by a comparison and a choice.

    Args:
        model: The graph; changed in place.
        statistics: Float64 values that the model's imputers fill in, one array an imputer; the operator
            holds them rounded to float32.
    """
    types = element_types(model)
    fresh: list[NodeProto] = []
    for node in model.graph.node:
        if node.op_type == "Imputer" and types.get(node.input[0]) == _double():
            fresh.extend(_imputer_in_steps(model.graph, node, statistics))
        else:
            fresh.append(node)
    copies = [_copy(n) for n in fresh]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _imputer_in_steps(graph: GraphProto, node: NodeProto, statistics: Sequence[Array]) -> list[NodeProto]:
    import numpy as np
    from onnx import helper, numpy_helper

    found = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    rows, answer = node.input[0], node.output[0]
    rounded = np.array(found["imputed_value_floats"], dtype=np.float32)
    exact = (
        s for s in statistics if s.shape == rounded.shape and np.array_equal(s.astype(np.float32), rounded)
    )
    values = np.asarray(next(exact, rounded), dtype=np.float64).reshape(1, -1)
    graph.initializer.append(numpy_helper.from_array(values, f"{answer}/imputed"))
    replaced = found.get("replaced_value_float", 0.0)
    if np.isnan(replaced):
        test = helper.make_node("IsNaN", [rows], [f"{answer}/missing"], name=f"{answer}/missing")
    else:
        marker = np.array(replaced, dtype=np.float64)
        graph.initializer.append(numpy_helper.from_array(marker, f"{answer}/marker"))
        test = helper.make_node(
            "Equal", [rows, f"{answer}/marker"], [f"{answer}/missing"], name=f"{answer}/missing"
        )
    choice = [f"{answer}/missing", f"{answer}/imputed", rows]
    return [test, helper.make_node("Where", choice, [answer], name=f"{answer}/choice")]


def element_types(model: ModelProto) -> dict[str, int]:
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
