"""The model that every server of the comparison runs: logistic regression on two features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.linear_model import LogisticRegression

CONFIG = """\
name: "risk_model"
backend: "onnxruntime"
max_batch_size: 32
input [{ name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] }]
output [{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] }]
dynamic_batching { max_queue_delay_microseconds: 5000 }
instance_group [{ count: 1 kind: KIND_CPU }]
parameters { key: "intra_op_thread_count" value { string_value: "1" } }
"""
ROW = [0.5, 0.25]


def write_repository(folder: Path) -> Path:
    """Train, convert and write the repository; the path of the ONNX file."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(500, 2)).astype(np.float32)
    labels = (features.sum(axis=1) > 0).astype(np.int64)
    classifier = LogisticRegression().fit(features, labels)
    model = to_onnx(
        classifier,
        initial_types=[("INPUT0", FloatTensorType([None, 2]))],
        options={id(classifier): {"zipmap": False}},
        target_opset=17,
    )
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.array([1], dtype=np.int64), "second_column"))
    graph.node.append(helper.make_node("Gather", ["probabilities", "second_column"], ["OUTPUT0"], axis=1))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("OUTPUT0", TensorProto.FLOAT, [None, 1]))
    path = folder / "risk_model" / "1" / "model.onnx"
    path.parent.mkdir(parents=True)
    onnx.save(model, path)
    (folder / "risk_model" / "config.pbtxt").write_text(CONFIG, encoding="utf-8")
    return path
