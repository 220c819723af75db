"""The reader of ONNX interfaces, against the onnx package and ONNX Runtime."""

from __future__ import annotations

import io

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from repobuild.lint.onnx_file import ExternalData, OnnxTensor, read_interface
from repobuild.lint.run import lint
from repobuild.releases import RELEASES, newest

CONFIG = """backend: "onnxruntime" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 2 }
output { name: "y" data_type: TYPE_FP32 dims: DIM }
"""


def product(declared, ir=8, opset=17):
    """x [batch, 2] times a constant [2, 3], with the output's shape declared as given."""
    weights = numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, declared)],
        [weights],
    )
    return helper.make_model(graph, ir_version=ir, opset_imports=[helper.make_opsetid("", opset)])


def read(model):
    """The interface of a model message."""
    return read_interface(io.BytesIO(model.SerializeToString()))


def test_the_interface_is_read_as_onnx_has_it():
    """Names, types, shapes, symbols, opsets, operators and functions; weights are not."""
    model = product(["batch", 3])
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    model.opset_import.append(helper.make_opsetid("ai.onnx", 16))
    inner = helper.make_graph([helper.make_node("Twist", [], ["t"], domain="my.ops")], "b", [], [])
    model.graph.node.append(helper.make_node("If", ["c"], ["d"], then_branch=inner, else_branch=inner))
    model.graph.input.append(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None))
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2, 3]))
    model.graph.output.append(helper.make_tensor_value_info("scalar", TensorProto.INT64, []))
    model.graph.output.append(helper.make_tensor_value_info("any", TensorProto.BOOL, None))
    model.functions.append(helper.make_function("mine", "F", [], [], [], []))
    found = read(model)
    assert (found.ir, found.opsets) == (8, {"": 17, "ai.onnx.ml": 3})
    assert found.inputs == [
        OnnxTensor("x", "tensor", TensorProto.FLOAT, (-1, 2), ("batch", "")),
        OnnxTensor("s", "sequence", 0, None),
    ]
    assert found.initial == [OnnxTensor("w", "tensor", TensorProto.FLOAT, (2, 3), ("", ""))]
    assert found.outputs == [
        OnnxTensor("y", "tensor", TensorProto.FLOAT, (-1, 3), ("batch", "")),
        OnnxTensor("scalar", "tensor", TensorProto.INT64, ()),
        OnnxTensor("any", "tensor", TensorProto.BOOL, None),
    ]
    assert found.operators == {("", "MatMul"), ("", "If"), ("my.ops", "Twist")}
    assert found.functions == {"mine"}


def test_external_data_is_noted_with_its_end(tmp_path):
    """The largest offset and length of each file count, as onnx writes them."""
    model = product(["batch", 3])
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    with (tmp_path / "m.onnx").open("rb") as file:
        assert read_interface(file).external == {"w.bin": ExternalData("w.bin", 24)}


def test_weights_are_skipped_and_not_read():
    """A weight of megabytes costs a few reads of twenty bytes."""

    class Counting(io.BytesIO):
        taken = 0

        def read(self, size=-1):
            data = super().read(size)
            self.taken += len(data)
            return data

    model = product(["batch", 3])
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(4_000_000, np.float32), "big"))
    file = Counting(model.SerializeToString())
    read_interface(file)
    assert file.taken < 5_000


@pytest.mark.parametrize(
    ("declared", "dims", "rules"),
    [
        (["batch", 3], 3, []),
        (["batch", "width"], 3, []),
        (None, 3, []),
        (["batch", "width"], -1, ["onnx-output-dims"]),
        (None, -1, ["onnx-output-dims"]),
        (["batch", 3], 4, ["onnx-output-dims"]),
        (["batch", "width"], 4, ["onnx-output-dims"]),
    ],
)
def test_output_dims_are_held_against_what_onnx_runtime_infers(tmp_path, declared, dims, rules):
    """The runtime merges inferred sizes into declared ones, and Triton compares with the result."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model = product(declared).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    shape = [d if isinstance(d, int) else -1 for d in session.get_outputs()[0].shape]
    assert (shape != [-1, dims]) == bool(rules)
    (tmp_path / "r/m/1").mkdir(parents=True)
    (tmp_path / "r/m/1/model.onnx").write_bytes(model)
    (tmp_path / "r/m/config.pbtxt").write_text(CONFIG.replace("DIM", str(dims)))
    assert [f.rule for f in lint(tmp_path / "r", newest()).findings] == rules


def test_the_installed_runtime_loads_what_the_table_says_of_its_release(tmp_path):
    """For the runtime that is installed, if a release has it, the next opset and IR version are refused."""
    onnxruntime = pytest.importorskip("onnxruntime")
    minor = onnxruntime.__version__.rpartition(".")[0]
    rows = [r for r in RELEASES.values() if r.onnxruntime.rpartition(".")[0] == minor]
    if not rows:
        pytest.skip(f"no release of the table has ONNX Runtime {minor}")
    for ir, opset, loads in (
        (rows[-1].ir, rows[-1].opset, True),
        (rows[-1].ir + 1, 17, False),
        (8, rows[-1].opset + 1, False),
    ):
        model = product(["batch", 3], ir, opset).SerializeToString()
        try:
            onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        except Exception:  # noqa: BLE001 - its exception classes are not public
            assert not loads
        else:
            assert loads
