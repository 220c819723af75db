"""Graphs that this package made come in again: the names that it gives are taken already."""

import numpy as np
import onnx
import pytest

from repobuild.graph.labels import index_labels
from repobuild.graph.walk import fresh_label
from repobuild.transforms.batch_transposes import put_behind

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
F = np.float32


def taken():
    """A graph with names of ours, in a branch too."""
    graph = onnx.parser.parse_model(
        HEAD
        + """g (bool c, float[N,3] x) => (float[N,3] y) {
        a = Relu(x)
        y = If(c) <then_branch = inner () => (float[N,3] p) { p = Neg(a) },
                   else_branch = other () => (float[N,3] q) { q = Abs(a) }> }"""
    ).graph
    graph.node[0].name = "repobuild/y/0_Identity"
    graph.node[1].attribute[0].g.node[0].name = "deep/node"
    return graph


@pytest.mark.parametrize(
    ("wanted", "label"),
    [
        ("free", "free"),
        ("repobuild/y/0_Identity", "repobuild/y/0_Identity_2"),
        ("deep", "deep_2"),
        ("a", "a_2"),
        ("q", "q_2"),
    ],
)
def test_a_label_is_free_for_node_and_constants(wanted, label):
    assert fresh_label(taken(), wanted) == label


def again(built, made, **inputs):
    path = made.emission.folder / str(made.emission.version) / "model.onnx"
    return built(onnx.load(path), **inputs)


def test_a_graph_is_built_again_and_once_more(built):
    text = (
        HEAD + "g (float x, float[n] y) => (float z, float w) { z = ReduceSum<keepdims=0>(y) w = Add(z, x) }"
    )
    made = built(text, x=np.array(3, F), y=np.ones(4, F))
    for _ in range(2):
        made = again(built, made, x=np.array([3], F), y=np.ones(4, F))
    graph = onnx.load(made.emission.folder / str(made.emission.version) / "model.onnx").graph
    names = [n.name for n in graph.node if n.name]
    assert len(set(names)) == len(names)
    assert [o.name for o in graph.output] == ["z", "w"]


def test_classes_are_looked_up_in_a_graph_that_looks_them_up_already():
    model = onnx.parser.parse_model(HEAD + "g (string[N] x) => (string[N] y) { y = Identity(x) }")
    for classes in (["a", "b"], [0, 1]):
        index_labels({"y": classes})(model)
    names = [n.name for n in model.graph.node if n.name]
    made = [o for n in model.graph.node for o in n.output]
    assert len(set(names)) == len(names) == 2
    assert len(set(made)) == len(made)


def test_moved_transposes_have_names_of_their_own():
    text = """g (float[N,2,4] x, float[N,2,4] v) => (float[2,N,3] y, float[2,N,3] z)
        <float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}> {
        a = Transpose<perm=[1,0,2]>(x)
        y = MatMul(a, w)
        b = Transpose<perm=[1,0,2]>(v)
        z = MatMul(b, w) }"""
    model = onnx.parser.parse_model(HEAD + text)
    for node, name in zip(model.graph.node, ("first", "second/transposed", "third", "second"), strict=True):
        node.name = name
    assert put_behind(model) == 2
    names = [n.name for n in model.graph.node]
    assert len(set(names)) == len(names) == 4
