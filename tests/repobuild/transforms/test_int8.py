"""int8: both modes, what is left alone, and that nothing of the quantiser is lost or left behind."""

import logging
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from repobuild.errors import ConversionFailed, InputInvalid
from repobuild.transforms.int8 import BATCH_NOTE, Int8

node = helper.make_node
IN, OUT = {"x": ("f", ["n", 64])}, {"y": ("f", ["n", 64])}
MLP = [
    node("MatMul", ["x", "a"], ["h"]),
    node("Relu", ["h"], ["r"]),
    node("Gemm", ["r", "b", "bias"], ["y"], transB=1),
]
MODES = pytest.mark.parametrize("mode", ["dynamic", "static"])


@pytest.fixture
def weights(rng):
    return {
        "a": (rng.normal(size=(64, 64)) * 0.1).astype("f"),
        "b": (rng.normal(size=(64, 64)) * 0.1).astype("f"),
        "bias": rng.normal(size=64).astype("f"),
    }


@pytest.fixture
def requests(rng):
    return [{"x": rng.normal(size=(n, 64)).astype("f")} for n in (1, 5, 3)]


@MODES
@pytest.mark.parametrize("external", [False, True], ids=["inline", "external"])
def test_a_network_gets_small_and_answers_nearly_alike(
    graph, target, same, weights, requests, mode, external
):
    path = graph(MLP, IN, OUT, weights, external=external)
    beside = sorted(p.name for p in path.parent.iterdir())
    done = Int8(mode).apply(path, requests, target)
    same(path, target, requests, rtol=0, atol=0.1)
    assert done.after.bytes < 0.4 * done.before.bytes
    assert sorted(p.name for p in path.parent.iterdir()) == beside
    made = sorted(p.name for p in target.parent.iterdir())
    assert made == ["model.onnx", *(["model.onnx.data"] if external else [])]
    expected = {"dynamic": "2 MatMulInteger", "static": "QuantizeLinear"}[mode]
    assert expected in done.detail
    assert (BATCH_NOTE in done.notes) == (mode == "dynamic")


@MODES
def test_what_the_quantiser_says_becomes_a_note_and_its_logger_stays(
    graph, target, weights, requests, mode, capfd, monkeypatch
):
    from onnxruntime.quantization import onnx_quantizer, qdq_quantizer

    for kind in (onnx_quantizer.ONNXQuantizer, qdq_quantizer.QDQQuantizer):
        whole = kind.quantize_model

        def speaking(self, whole=whole):
            logging.getLogger().warning("something else")
            return whole(self)

        monkeypatch.setattr(kind, "quantize_model", speaking)
    root = logging.getLogger()
    before = list(root.handlers), root.level
    done = Int8(mode).apply(graph(MLP, IN, OUT, weights), requests, target)
    assert (list(root.handlers), root.level) == before
    assert "the quantiser says: something else" in done.notes
    assert not any("Please consider" in note for note in done.notes), "advice that has been followed"
    assert capfd.readouterr() == ("", "")


SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from repobuild.transforms.int8 import Int8
asked = [{"x": np.random.default_rng(1).normal(size=(4, 64)).astype("f")}]
Int8(sys.argv[3]).apply(Path(sys.argv[1]), asked, Path(sys.argv[2]))
"""


@MODES
def test_the_same_input_gives_the_same_bytes_in_other_processes(graph, target, weights, mode):
    path = graph(MLP, IN, OUT, weights)
    made = []
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", SCRIPT, path, target, mode],
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
        )
        made.append(target.read_bytes())
    assert made[0] == made[1]


def convolutions(rng):
    return [
        node("Conv", ["x", "k"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["m", "k2"], ["c2"]),
        node("GlobalAveragePool", ["c2"], ["g"]),
        node("Flatten", ["g"], ["y"]),
    ], {
        "k": (rng.normal(size=(16, 3, 3, 3)) * 0.2).astype("f"),
        "k2": (rng.normal(size=(32, 16, 3, 3)) * 0.1).astype("f"),
    }


@MODES
def test_convolutions_with_requests_of_different_shapes(graph, target, same, rng, mode):
    nodes, values = convolutions(rng)
    path = graph(nodes, {"x": ("f", ["n", 3, "h", "w"])}, {"y": ("f", ["n", 32])}, values)
    asked = [{"x": rng.normal(size=(n, 3, h, w)).astype("f")} for n, h, w in ((1, 12, 12), (3, 16, 20))]
    done = Int8(mode).apply(path, asked, target)
    same(path, target, asked, rtol=0, atol=0.05)
    assert done.after.bytes < 0.5 * done.before.bytes


def test_static_weights_have_one_scale_a_channel(graph, target, weights, requests):
    Int8("static").apply(graph(MLP, IN, OUT, weights), requests, target)
    scales = {t.name: t.dims for t in onnx.load(target).graph.initializer if "scale" in t.name}
    assert [64] in scales.values()


@pytest.mark.parametrize(("reduce_range", "most"), [(True, 64), (False, 127)], ids=["7 bits", "8 bits"])
def test_weights_use_seven_bits_unless_told_otherwise(graph, target, weights, requests, reduce_range, most):
    Int8("static", reduce_range=reduce_range).apply(graph(MLP, IN, OUT, weights), requests, target)
    held = [
        np.abs(numpy_helper.to_array(t).astype(int)).max()
        for t in onnx.load(target).graph.initializer
        if t.data_type == TensorProto.INT8 and len(t.dims) == 2
    ]
    assert max(held) == most


def test_static_leaves_masks_of_minus_infinity_in_float32(graph, target, same, weights, requests):
    nodes = [
        node("MatMul", ["x", "a"], ["h"]),
        node("Add", ["h", "mask"], ["masked"], name="masking"),
        node("Softmax", ["masked"], ["p"]),
        node("MatMul", ["p", "b"], ["y"]),
    ]
    mask = np.zeros(64, "f")
    mask[::2] = np.finfo("f").min
    path = graph(nodes, IN, OUT, {**weights, "mask": mask})
    done = Int8("static").apply(path, requests, target)
    same(path, target, requests, rtol=0, atol=0.02)
    assert any("Add 'masking': 'masked' reaches 3.4e+38" in note for note in done.notes)


def test_static_leaves_what_reaches_infinity_in_float32(graph, target, same, weights, requests):
    nodes = [
        *MLP[:2],
        node("MatMul", ["r", "b"], ["g"]),
        node("Relu", ["g"], ["p"]),
        node("Log", ["p"], ["y"]),
    ]
    path = graph(nodes, IN, OUT, weights)
    done = Int8("static").apply(path, requests, target)
    assert any("'y' reaches NaN or infinity" in note for note in done.notes)


@MODES
def test_constant_nodes_and_shared_weights_are_quantised(graph, target, same, weights, requests, mode):
    nodes = [
        node("Constant", [], ["a"], value=numpy_helper.from_array(weights["a"])),
        node("MatMul", ["x", "a"], ["h"]),
        node("MatMul", ["h", "a"], ["y"]),
    ]
    path = graph(nodes, IN, OUT)
    done = Int8(mode).apply(path, requests, target)
    same(path, target, requests, rtol=0, atol=0.1)
    assert done.after.bytes < 0.5 * done.before.bytes


def test_requests_without_rows_take_no_part(graph, target, same, weights, requests):
    path = graph(MLP, IN, OUT, weights)
    asked = [{"x": np.zeros((0, 64), "f")}, *requests]
    done = Int8("static").apply(path, asked, target)
    same(path, target, asked, rtol=0, atol=0.1)
    assert "1 requests without elements took no part in the calibration" in done.notes
    with pytest.raises(InputInvalid) as caught:
        Int8("static").apply(path, asked[:1], target)
    assert caught.value.code == "samples-needed"


@MODES
@pytest.mark.parametrize(
    ("kind", "array"), [("f", np.ones(3, "f")), ("d", np.ones(3)), ("i", np.ones(3, "i8"))],
    ids=["float32", "float64", "int64"],
)  # fmt: skip
def test_a_graph_with_nothing_to_quantise_is_refused(graph, target, mode, kind, array):
    path = graph([node("Abs", ["x"], ["y"])], {"x": (kind, ["n"])}, {"y": (kind, ["n"])})
    with pytest.raises(ConversionFailed) as caught:
        Int8(mode).apply(path, [{"x": array}], target)
    assert caught.value.code == "nothing-to-convert"
    assert "its nodes: 1 Abs" in str(caught.value)
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize(("mode", "opset"), [("dynamic", 10), ("static", 12)], ids=["dynamic", "static"])
def test_an_old_opset_is_refused_with_the_opset_to_name(graph, target, weights, requests, mode, opset):
    path = graph(MLP[:1], IN, {"h": OUT["y"]}, weights, opset=opset)
    with pytest.raises(ConversionFailed) as caught:
        Int8(mode).apply(path, requests, target)
    assert caught.value.code == "opset-conversion"
    assert f"opset: {opset + 1}" in str(caught.value)


def test_a_fault_of_the_quantiser_is_an_error_with_its_words(graph, target, weights, requests, monkeypatch):
    import onnxruntime.quantization

    def broken(*_, **__):
        raise KeyError("no such tensor")

    monkeypatch.setattr(onnxruntime.quantization, "quantize_dynamic", broken)
    with pytest.raises(ConversionFailed, match="KeyError") as caught:
        Int8("dynamic").apply(graph(MLP, IN, OUT, weights), requests, target)
    assert caught.value.code == "quantiser-failed"
    assert list(target.parent.iterdir()) == []


def test_bodies_of_branches_stay_as_they_are(graph, target, same, weights, requests):
    def branch(name, kind):
        return helper.make_graph(
            [node("MatMul", ["h", "b"], [f"{name}1"]), node(kind, [f"{name}1"], [f"{name}2"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}2", 1, ["n", 64])],
        )

    nodes = [
        node("MatMul", ["x", "a"], ["h"]),
        node("ReduceSum", ["h"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=branch("t", "Relu"), else_branch=branch("e", "Abs")),
    ]
    path = graph(nodes, IN, OUT, {**weights, "zero": np.float32(0)})
    for mode in ("dynamic", "static"):
        Int8(mode).apply(path, requests, target)
        same(path, target, requests, rtol=0, atol=0.1)


def test_operators_that_share_a_name_with_those_of_onnx_runtime_are_left(graph, target, same, rng, weights):
    nodes = [
        node("Attention", ["x", "x", "x"], ["h"], q_num_heads=2, kv_num_heads=2),
        node("MatMul", ["h", "a"], ["y"]),
    ]
    shape = ("f", ["n", "s", 64])
    path = graph(nodes, {"x": shape}, {"y": shape}, {"a": weights["a"]}, opset=23)
    asked = [{"x": rng.normal(size=(2, s, 64)).astype("f")} for s in (1, 5)]
    done = Int8("dynamic").apply(path, asked, target)
    same(path, target, asked, rtol=0, atol=0.1)
    assert "1 MatMulInteger" in done.detail


def test_an_ir_version_that_wants_initialisers_as_inputs_is_raised(graph, target, same, weights, requests):
    path = graph(MLP[:1], IN, {"h": OUT["y"]}, {"a": weights["a"]}, opset=13, weights_as_inputs=["a"])
    proto = onnx.load(path)
    proto.ir_version = 3
    onnx.save(proto, path)
    done = Int8("dynamic").apply(path, requests, target)
    assert "the IR version was raised from 3 to 4" in done.notes
    onnx.checker.check_model(str(target))
