"""Makes float64 graphs of scikit-learn models load and answer as scikit-learn does.

ONNX's tree operators answer in float32 whatever they take, and scikit-learn's exporter declares float64
there, so ONNX Runtime refuses the graph. And what scikit-learn compares differs: its decision trees round their rows
to float32 first (``sklearn.tree._tree.DTYPE``), its histogram boosters compare in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor")
FLOAT_ONLY = ("SVMRegressor",)
"""Operators that ONNX Runtime has for float32 alone."""

Thresholds: TypeAlias = Mapping[tuple[int, int], float]
"""Float64 thresholds of one ensemble by tree and node number."""


def fit_double_operators(model: ModelProto, boosters: Sequence[Thresholds] = ()) -> None:
    """Put casts around operators of float32, and float64 thresholds into trees that compare in float64.

    Args:
        model: A float64 graph; changed in place.
        boosters: Thresholds of the model's histogram boosters; a tree operator is taken for one of them when
            all its thresholds are these, rounded.
    """
    types = _element_types(model)
    double = _double()
    fresh: list[NodeProto] = []
    fitted: set[str] = set()
    for node in list(model.graph.node):
        if node.op_type not in (*TREES, *FLOAT_ONLY) or types.get(node.input[0]) != double:
            fresh.append(node)
            continue
        thresholds = _own_thresholds(node, boosters) if node.op_type in TREES else None
        if thresholds is None:
            fresh.append(_cast(node.input[0], f"{node.output[0]}/rows32", to_double=False))
            node.input[0] = f"{node.output[0]}/rows32"
        else:
            _set_thresholds(node, thresholds)
            _raise_ml_opset(model)
        answer = len(node.output) - 1
        name = node.output[answer]
        fitted.add(name)
        node.output[answer] = f"{name}/answer32"
        fresh.extend((node, _cast(f"{name}/answer32", name, to_double=True)))
    copies = [_copy(n) for n in fresh]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    for value in model.graph.output:
        if value.name in fitted:
            value.type.tensor_type.elem_type = double


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


def _own_thresholds(node: NodeProto, boosters: Sequence[Thresholds]) -> list[float] | None:
    import numpy as np

    attributes = {a.name: a for a in node.attribute}
    keys = list(zip(attributes["nodes_treeids"].ints, attributes["nodes_nodeids"].ints, strict=True))
    modes = attributes["nodes_modes"].strings
    values = np.array(attributes["nodes_values"].floats, dtype=np.float32)
    for booster in boosters:
        exact = [
            float(v) if mode == b"LEAF" else booster.get(key)
            for key, v, mode in zip(keys, values, modes, strict=True)
        ]
        if None in exact:
            continue
        rounded = np.array(exact, dtype=np.float64).astype(np.float32)
        near = (
            (rounded == values)
            | (np.nextafter(rounded, -np.inf) == values)
            | (np.nextafter(rounded, np.inf) == values)
        )
        if near.all():
            return [float(v) for v in exact if v is not None]
    return None


def _set_thresholds(node: NodeProto, thresholds: list[float]) -> None:
    import numpy as np
    from onnx import helper, numpy_helper

    kept = [a for a in node.attribute if a.name != "nodes_values"]
    tensor = numpy_helper.from_array(np.array(thresholds, dtype=np.float64), "nodes_values_as_tensor")
    kept.append(helper.make_attribute("nodes_values_as_tensor", tensor))
    copies = [type(a).FromString(a.SerializeToString()) for a in kept]
    del node.attribute[:]
    node.attribute.extend(copies)


def _raise_ml_opset(model: ModelProto) -> None:
    """Tensors of thresholds came with version 3 of the domain (onnx/onnx, docs/Changelog-ml.md)."""
    for entry in model.opset_import:
        if entry.domain == "ai.onnx.ml":
            entry.version = max(entry.version, 3)


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
