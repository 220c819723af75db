"""The first node where an artifact leaves its reference."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from repobuild.recipe.types import Bounds, Tolerance
from repobuild.transforms import bisect
from repobuild.transforms.bfloat16 import BFloat16
from repobuild.transforms.bisect import first_departure
from repobuild.transforms.half import Half
from repobuild.transforms.int8 import Int8
from repobuild.transforms.interface import Limits
from repobuild.transforms.optimise import optimise

node = helper.make_node
IN, OUT = {"x": ("f", ["n", 64])}, {"y": ("f", ["n", 64])}
NODES = [
    node("MatMul", ["x", "a"], ["h"], name="first"),
    node("Relu", ["h"], ["r"], name="bend"),
    node("Shape", ["r"], ["shape"], name="look"),
    node("MatMul", ["r", "b"], ["g"], name="second"),
    node("Reshape", ["g", "shape"], ["g2"], name="form"),
    node("Identity", ["g2"], ["g3"], name="same"),
    node("Softmax", ["g3"], ["y"], name="end"),
]
TIGHT = Bounds(1e-5, 1e-5)


@pytest.fixture
def path(graph, rng):
    values = {name: (rng.normal(size=(64, 64)) * 0.3).astype("f") for name in "ab"}
    return graph(NODES, IN, OUT, values)


@pytest.fixture
def requests(rng):
    return [{"x": rng.normal(size=(n, 64)).astype("f")} for n in (2, 5, 0)]


def broken(path, target, change):
    proto = onnx.load(path)
    change(proto.graph)
    onnx.save(proto, target)
    return target


def weight(name, row, column, value):
    def change(graph):
        for tensor in graph.initializer:
            if tensor.name == name:
                array = numpy_helper.to_array(tensor).copy()
                array[row, column] = value
                tensor.CopyFrom(numpy_helper.from_array(array, name))

    return change


def operator(name, kind):
    def change(graph):
        for at in graph.node:
            if at.name == name:
                at.op_type = kind

    return change


def test_a_graph_does_not_leave_itself(path, requests):
    assert first_departure(path, path, requests, Bounds(0, 0)) is None


@pytest.mark.parametrize(("name", "at", "before"), [("a", "first", "x"), ("b", "second", "r")])
def test_a_changed_weight_names_the_node_that_reads_it(path, target, requests, name, at, before):
    found = first_departure(path, broken(path, target, weight(name, 3, 7, 9.0)), requests, TIGHT)
    assert (found.node, found.operator, found.agreed) == (at, "MatMul", before)
    assert found.worst.at == (7,)
    assert f"MatMul '{at}'" in str(found)


def test_a_swapped_operator_is_named_in_both_graphs(path, target, requests):
    found = first_departure(path, broken(path, target, operator("bend", "Sigmoid")), requests, TIGHT)
    assert (found.node, found.operator, found.artifact_operator) == ("bend", "Relu", "Sigmoid")
    assert (found.tensor, found.agreed, found.request, found.unseen) == ("r", "h", 0, ())
    assert str(found).startswith(
        "Sigmoid 'bend' of the artifact, compared with Relu 'bend' of the exported graph, tensor 'r', request"
    )


def test_the_request_that_shows_it_is_named(path, target, requests):
    quiet = {"x": np.zeros((1, 64), "f")}
    found = first_departure(path, broken(path, target, weight("a", 3, 7, 9.0)), [quiet, *requests], TIGHT)
    assert found.request == 1


def test_a_tolerance_gives_bounds_by_tensor(path, target, requests):
    other = broken(path, target, weight("a", 3, 7, 9.0))
    loose = Tolerance(TIGHT, {name: Bounds(1e9, 0) for name in ("h", "r", "g", "g2")})
    assert first_departure(path, other, requests, loose).tensor == "g3"


def test_other_shapes_and_types_are_departures(path, target, requests):
    def change(graph):
        graph.node[-1].input[0] = "cut"
        extra = node("Slice", ["g3", "zero", "one", "one"], ["cut"])
        graph.node.insert(len(graph.node) - 1, extra)
        graph.initializer.append(numpy_helper.from_array(np.array([0]), "zero"))
        graph.initializer.append(numpy_helper.from_array(np.array([1]), "one"))

    found = first_departure(path, broken(path, target, change), requests[:2], TIGHT)
    assert (found.node, found.worst) == ("end", None)
    assert found.why == "shape [2, 1], the model has [2, 64]"


def test_what_an_optimiser_removed_is_named_as_unseen(path, target, requests):
    def change(graph):
        operator("bend", "Sigmoid")(graph)
        for old, new in (("r", "r_"), ("g", "g_"), ("g2", "g2_"), ("shape", "shape_")):
            for at in graph.node:
                at.input[:] = [new if name == old else name for name in at.input]
                at.output[:] = [new if name == old else name for name in at.output]

    found = first_departure(path, broken(path, target, change), requests, TIGHT)
    assert (found.node, found.agreed) == ("same", "h")
    assert found.unseen == ("Relu 'bend'", "Shape 'look'", "MatMul 'second'", "Reshape 'form'")
    assert not found.fused  # several nodes of the artifact lie between
    assert "; not seen: Relu 'bend', Shape 'look', " in str(found)


def test_a_tensor_written_in_another_way_is_no_departure(path, target, requests):
    def change(graph):
        for at, name in enumerate(n.name for n in graph.node):
            if name == "look":
                del graph.node[at]
                break
        graph.initializer.append(numpy_helper.from_array(np.array([0, -1]), "shape"))

    assert first_departure(path, broken(path, target, change), requests[:2], TIGHT) is None


@pytest.mark.parametrize("chunk", [1, 3])
def test_small_chunks_find_the_same(path, target, requests, monkeypatch, chunk):
    monkeypatch.setattr(bisect, "MEMORY", 1)
    monkeypatch.setattr(bisect, "FIRST", chunk)
    found = first_departure(path, broken(path, target, weight("b", 3, 7, 9.0)), requests, TIGHT)
    assert (found.node, found.agreed) == ("second", "r")
    assert first_departure(path, path, requests, Bounds(0, 0)) is None


@pytest.mark.parametrize(
    ("transform", "loose"),
    [(Half(), 0.02), (BFloat16(), 0.1), (Int8("dynamic"), 0.5), (Int8("static"), 0.5)],
    ids=lambda x: getattr(x, "name", ""),
)
def test_transformed_graphs_are_compared_tensor_by_tensor(path, target, requests, transform, loose):
    transform.apply(path, requests, target)
    tight = first_departure(path, target, requests, Bounds(1e-6, 1e-6))
    first = {"int8-static": ("bend", "r")}  # the quantiser took the ReLU and its input's name away
    assert (tight.node, tight.tensor) == first.get(transform.name, ("first", "h"))
    assert first_departure(path, target, requests, Bounds(loose, loose)) is None


def test_a_relu_that_the_quantiser_took_is_told_by_the_node_that_is_there(path, target, requests):
    Int8("static").apply(path, requests, target)
    made = {name: at for at in onnx.load(target).graph.node for name in at.output}
    assert not any(at.op_type == "Relu" for at in made.values())
    found = first_departure(path, target, requests, Bounds(1e-6, 1e-6))
    assert (found.artifact_operator, found.artifact_node) == ("MatMul", "first")
    assert made[found.artifact_tensor].op_type == "DequantizeLinear"
    assert str(found).startswith(
        "MatMul 'first' of the artifact (fused from MatMul 'first' and Relu 'bend'), compared with Relu"
        f" 'bend' of the exported graph, tensor 'r' ('{found.artifact_tensor}' in the artifact), request 0: "
    )
    assert found.worst.absolute < 0.5  # what the quantiser cuts off is no deviation


def test_a_constant_in_place_of_a_node_is_called_so(path, target, requests):
    def change(graph):
        del graph.node[0]
        graph.initializer.append(numpy_helper.from_array(np.zeros((2, 64), "f"), "h"))

    found = first_departure(path, broken(path, target, change), requests[:1], TIGHT)
    assert str(found).startswith("a constant of the artifact, compared with MatMul 'first' of the exported")


@pytest.mark.parametrize("transform", [Half(), Int8("static"), Int8("dynamic")], ids=lambda x: x.name)
def test_a_fault_in_a_transformed_graph_is_told_from_its_rounding(
    path, target, requests, transform, tmp_path
):
    broken(path, target, operator("bend", "Abs"))
    final = tmp_path / "final.onnx"
    transform.apply(target, requests, final)
    found = first_departure(path, final, requests, Bounds(0.5, 0.5))
    assert (found.node, found.tensor, found.agreed) == ("bend", "r", "h")


def test_an_optimised_graph_agrees_and_a_fault_in_it_is_found(path, target, requests):
    optimise(path, requests, target, Limits(17, 3, 8))
    assert first_departure(path, target, requests, Bounds(1e-5, 1e-4)) is None
    other = broken(target, target.with_name("other.onnx"), weight("b", 3, 7, 9.0))
    found = first_departure(path, other, requests, Bounds(1e-5, 1e-4))
    assert (found.node, found.artifact_operator) == ("form", "MatMul")  # the Reshape went, and gave its name
    assert "MatMul 'second'" in found.unseen


def test_text_and_control_flow_are_compared(graph, target):
    body = [
        helper.make_graph(
            [node(kind, ["x"], [name])], name, [], [helper.make_tensor_value_info(name, 1, ["n", 2])]
        )
        for kind, name in (("Relu", "t"), ("Abs", "e"))
    ]
    nodes = [
        node("StringNormalizer", ["s"], ["lower"], case_change_action="LOWER", locale="C.UTF-8"),
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["c"]),
        node("If", ["c"], ["y"], name="choice", then_branch=body[0], else_branch=body[1]),
    ]
    path = graph(
        nodes,
        {"s": ("s", ["k"]), "x": ("f", ["n", 2])},
        {"lower": ("s", ["k"]), "y": ("f", ["n", 2])},
        {"zero": np.float32(0)},
    )
    asked = [{"s": np.array(["A", "b"], dtype=object), "x": np.float32([[1, -2]])}]
    assert first_departure(path, path, asked, TIGHT) is None

    def change(graph):
        branch = next(a.g for a in graph.node[-1].attribute if a.name == "else_branch")
        branch.node[0].op_type = "Neg"

    found = first_departure(path, broken(path, target, change), asked, TIGHT)
    assert (found.node, found.operator) == ("choice", "If")
