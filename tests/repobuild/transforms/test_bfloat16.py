"""bfloat16: half the file, float32 arithmetic."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from repobuild.errors import ConversionFailed
from repobuild.transforms.bfloat16 import BFloat16, rounded

node = helper.make_node
IN, OUT = {"x": ("f", ["n", 64])}, {"y": ("f", ["n", 64])}
NODES = [node("MatMul", ["x", "a"], ["h"]), node("Relu", ["h"], ["r"]), node("MatMul", ["r", "b"], ["y"])]


@pytest.fixture
def weights(rng):
    return {name: (rng.normal(size=(64, 64)) * 0.1).astype("f") for name in "ab"}


def narrow(values):
    return values.astype(ml_dtypes.bfloat16).astype("f")


def test_rounding_is_that_of_ml_dtypes_for_every_kind_of_value(rng):
    bits = rng.integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32)
    bits[:8] = 0, 0x80000000, 0x7F800000, 0xFF800000, 0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x00000001
    values = bits.view(np.float32)
    with np.errstate(invalid="ignore"):  # signalling NaN
        want = values.astype(ml_dtypes.bfloat16)
    got = rounded(values).view(ml_dtypes.bfloat16)
    nan = np.isnan(values)
    assert np.isnan(got[nan].astype("f")).all()
    np.testing.assert_array_equal(got[~nan].view("u2"), want[~nan].view("u2"))
    assert rounded(values.reshape(100, 1000)).shape == (100, 1000)


@pytest.mark.parametrize("external", [False, True], ids=["inline", "external"])
def test_answers_are_those_of_rounded_weights_to_the_bit(
    graph, target, answers, interface, rng, weights, external
):
    path = graph(NODES, IN, OUT, weights, external=external)
    asked = [{"x": rng.normal(size=(n, 64)).astype("f")} for n in (1, 4, 0)]
    done = BFloat16().apply(path, asked, target)
    assert done.after.bytes < 0.55 * done.before.bytes
    assert interface(path) == interface(target)
    wanted = graph(NODES, IN, OUT, {n: narrow(w) for n, w in weights.items()}, folder="rounded")
    for want, got in zip(answers(wanted, asked), answers(target, asked), strict=True):
        np.testing.assert_array_equal(got["y"], want["y"])


def test_weights_that_would_become_infinite_stay(graph, target, rng, weights):
    weights["a"][0, 0] = np.finfo("f").max
    done = BFloat16().apply(graph(NODES, IN, OUT, weights), [], target)
    assert "weights that bfloat16 would make infinite stay float32: 'a'" in done.notes
    kinds = {t.name: t.data_type for t in onnx.load(target).graph.initializer}
    assert kinds == {"a": TensorProto.FLOAT, "b/bfloat16": TensorProto.BFLOAT16}


def test_weights_in_branches_and_constants_become_small(graph, target, same, weights):
    def branch(name, weight):
        return helper.make_graph(
            [
                node("Constant", [], ["c"], value=numpy_helper.from_array(weight)),
                node("MatMul", ["x", "c"], [name]),
            ],
            name,
            [],
            [helper.make_tensor_value_info(name, 1, ["n", 64])],
        )

    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["p"]),
        node(
            "If", ["p"], ["y"], then_branch=branch("t", weights["a"]), else_branch=branch("e", weights["b"])
        ),
    ]
    path = graph(nodes, IN, OUT, {"zero": np.float32(0)})
    done = BFloat16().apply(path, [], target)
    same(path, target, [{"x": np.full((2, 64), v, "f")} for v in (0.1, -0.1)], atol=1e-2)
    assert done.after.bytes < 0.55 * done.before.bytes
    assert done.detail == "2 weights are stored in bfloat16"


@pytest.mark.parametrize("kind", ["d", "i"], ids=["float64", "int64"])
def test_a_graph_without_large_float32_weights_is_refused(graph, target, kind):
    array = np.ones((64, 64), {"d": "f8", "i": "i8"}[kind])
    path = graph([node("Add", ["x", "w"], ["y"])], {"x": (kind, [64])}, {"y": (kind, [64, 64])}, {"w": array})
    with pytest.raises(ConversionFailed) as caught:
        BFloat16().apply(path, [], target)
    assert caught.value.code == "nothing-to-convert"


def test_an_opset_without_the_cast_is_refused(graph, target, weights):
    with pytest.raises(ConversionFailed) as caught:
        BFloat16().apply(graph(NODES, IN, OUT, weights, opset=12), [], target)
    assert caught.value.code == "opset-conversion"


def test_weights_that_are_outputs_or_inputs_keep_their_type(graph, target, same, rng, weights):
    outputs = {**OUT, "a": ("f", [64, 64])}
    weights["c"] = weights["b"] * 2
    nodes = [*NODES[:2], node("MatMul", ["r", "b"], ["z"]), node("MatMul", ["z", "c"], ["y"])]
    path = graph(nodes, IN, outputs, weights, weights_as_inputs=["b"])
    BFloat16().apply(path, [], target)
    same(path, target, [{"x": rng.normal(size=(2, 64)).astype("f")}], atol=2e-2)
    kinds = {t.name: t.data_type for t in onnx.load(target).graph.initializer}
    assert kinds == {"a": 1, "b": 1, "c/bfloat16": TensorProto.BFLOAT16}
