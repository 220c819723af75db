"""Gives a graph's inputs the names, the order and the axes that clients see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repobuild.graph.operators import default_opset, with_constants
from repobuild.graph.walk import fresh_label, read_from, rename_inputs
from repobuild.sources.interface import TensorExport
from repobuild.tensor_models.feed import TensorFeed

if TYPE_CHECKING:
    from onnx import ModelProto


def name_inputs(proto: ModelProto, exported: TensorExport, feed: TensorFeed, *, batched: bool) -> None:
    """Name and order the graph's inputs as the model's, and take away axes that only the wire has."""
    import numpy as np
    from onnx import helper

    back = {graph_name: name for name, graph_name in exported.inputs.items()}
    unknown = [v.name for v in proto.graph.input if v.name not in back]
    if unknown:
        raise ValueError(f"the graph has an input '{unknown[0]}' that the model has not")
    have = {v.name for v in proto.graph.input}
    for name, graph_name in exported.inputs.items():
        if graph_name not in have:
            value = proto.graph.input.add()
            value.name = graph_name
            item = next(i for i in feed.inputs if i.name == name)
            value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(item.dtype.numpy))
    order = [exported.inputs[i.name] for i in feed.inputs]
    values = {v.name: v for v in proto.graph.input}
    ordered = [values[name] for name in order]
    copies = [type(v).FromString(v.SerializeToString()) for v in ordered]
    del proto.graph.input[:]
    proto.graph.input.extend(copies)
    rename_inputs(proto.graph, [i.name for i in feed.inputs])
    lowest = 2 if batched else 1
    for item in feed.inputs:
        extra = lowest - len(item.axes)
        if extra <= 0:
            continue
        inner = fresh_label(proto.graph, f"repobuild/{item.name}/squeezed")
        read_from(proto.graph, {item.name: inner})
        axes = list(range(len(item.axes), lowest))
        node = with_constants(
            proto.graph, "Squeeze", item.name, inner, {"axes": axes}, inner, default_opset(proto)
        )
        proto.graph.node.insert(0, node)
