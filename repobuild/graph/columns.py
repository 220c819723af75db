"""The pass that lets one matrix stand for a graph's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repobuild.feeds import Feed
from repobuild.graph.walk import fresh_label
from repobuild.tensors import DType

if TYPE_CHECKING:
    from onnx import ModelProto


def split_matrix(model: ModelProto, feed: Feed, dtype: DType) -> None:
    """Put one input in place of a graph's column inputs, which become slices of it.

    Args:
        model: A graph with one ``[rows, 1]`` input a column; changed in place.
        feed: Names the matrix and its columns in order.
        dtype: Element type of the matrix and of the columns.
    """
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    used = {i.name for i in graph.input}
    produced = {o for node in graph.node for o in node.output} | {t.name for t in graph.initializer} | used
    matrix = feed.name
    while matrix in produced:
        matrix += "_"
    nodes = []
    for index, column in enumerate(feed.columns):
        if column.name not in used:
            continue
        label = fresh_label(graph, f"repobuild/column_{index}")
        for part, value in (("starts", [index]), ("ends", [index + 1]), ("axes", [1])):
            import numpy as np

            tensor = numpy_helper.from_array(np.array(value, dtype=np.int64), f"{label}/{part}")
            graph.initializer.append(tensor)
        inputs = [matrix, f"{label}/starts", f"{label}/ends", f"{label}/axes"]
        nodes.append(helper.make_node("Slice", inputs, [column.name], name=label))
    nodes.extend(type(n).FromString(n.SerializeToString()) for n in graph.node)
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.input[:]
    graph.input.append(
        helper.make_tensor_value_info(matrix, getattr(TensorProto, dtype.onnx), [None, len(feed.columns)])
    )
