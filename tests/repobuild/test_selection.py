"""Selections mean the same on arrays and in graphs."""

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from repobuild.graph.normal import normalise
from repobuild.graph.outputs import select_outputs
from repobuild.selection import Selection

ARRAY = np.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)


def passthrough(rank=3):
    """A graph whose output ``y`` is its input ``x``."""
    node = helper.make_node("Identity", ["x"], ["y"])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None] * rank)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def run(model, array):
    """The only output of a model."""
    model.ir_version = 8
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": array})[0]


@pytest.mark.parametrize(
    "text",
    ["y", "y[:]", "y[:, 1:2]", "y[:, 1]", "y[:, -1]", "y[:, ::2]", "y[:, :, 0]", "y[:, 1:3, 2]", "y[:,2,3]"],
)
def test_a_graph_selects_what_numpy_selects(text):
    selection = Selection.parse(text)
    want = selection.apply(ARRAY)
    model = passthrough()
    normalise(model, "m", [select_outputs({"out": [selection]}, {"y": 3})])
    got = run(model, ARRAY)
    np.testing.assert_array_equal(got, want.reshape(3, 1) if want.ndim == 1 else want)


index = st.one_of(
    st.integers(-4, 3).map(str),
    st.tuples(
        st.one_of(st.none(), st.integers(-6, 6)),
        st.one_of(st.none(), st.integers(-6, 6)),
        st.one_of(st.none(), st.integers(1, 4)),
    ).map(lambda t: ":".join("" if v is None else str(v) for v in t)),
)


@settings(max_examples=60, deadline=None)
@given(index, index)
def test_any_selection_means_the_same_in_both(first, second):
    selection = Selection.parse(f"y[:, {first}, {second}]")
    want = selection.apply(ARRAY)
    model = passthrough()
    normalise(model, "m", [select_outputs({"out": [selection]}, {"y": 3})])
    np.testing.assert_array_equal(run(model, ARRAY), want.reshape(3, 1) if want.ndim == 1 else want)


def test_two_selections_in_a_row():
    model = passthrough()
    chain = [Selection.parse("y[:, 1:3]"), Selection.parse("z[:, 1, 2:4]")]
    normalise(model, "m", [select_outputs({"out": chain}, {"y": 3})])
    np.testing.assert_array_equal(run(model, ARRAY), ARRAY[:, 1:3][:, 1, 2:4])


def test_an_output_may_take_the_name_of_an_inner_tensor():
    model = passthrough()
    model.graph.node[0].output[0] = "hidden"
    model.graph.node.append(helper.make_node("Neg", ["hidden"], ["y"]))
    normalise(model, "m", [select_outputs({"hidden": [Selection("y")]}, {"y": 3})])
    onnx.checker.check_model(model, full_check=False) if model.graph.output[0].HasField("type") else None
    np.testing.assert_array_equal(run(model, ARRAY), -ARRAY)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "form"),
        ("y[", "form"),
        ("y[:, 1:2", "form"),
        ("y[1]", "first index"),
        ("y[0:2]", "first index"),
        ("y[:, a]", "neither"),
        ("y[:, 1:2:3:4]", "neither"),
        ("y[:, ::0]", "step"),
        ("y[:, ::-1]", "step"),
        ("y[:, 99999999999]", "neither"),
        ("y[:, __import__('os')]", "neither"),
    ],
)
def test_what_is_no_selection_is_refused_with_a_reason(text, words):
    with pytest.raises(ValueError, match=words):
        Selection.parse(text)


@pytest.mark.parametrize("text", ["y", "y[:, 1:2]", "y[:, -1, ::2]"])
def test_a_selection_prints_as_it_reads(text):
    assert str(Selection.parse(text)) == text
