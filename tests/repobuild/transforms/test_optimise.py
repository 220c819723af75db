"""Optimisation that is measured: what is kept, what is dropped, and why."""

import numpy as np
import onnx
import pytest
from onnx import helper

from repobuild.recipe.types import Bounds
from repobuild.transforms import optimise as module
from repobuild.transforms import steps, timing
from repobuild.transforms.interface import Limits
from repobuild.transforms.optimise import optimise

node = helper.make_node
LIMITS = Limits(17, 3, 8)


def shaped(rng):
    """Batch normalisation, an Identity, a shape that is worked out, constants to add, and a dead end."""
    nodes = [
        node("Conv", ["x", "k"], ["c"]),
        node("BatchNormalization", ["c", "s", "b", "m", "v"], ["bn"]),
        node("Identity", ["bn"], ["i"]),
        node("Relu", ["i"], ["r"]),
        node("GlobalAveragePool", ["r"], ["g"]),
        node("Shape", ["g"], ["sh"]),
        node("Gather", ["sh", "zero"], ["rows"], axis=0),
        node("Concat", ["rows", "minus"], ["to"], axis=0),
        node("Reshape", ["g", "to"], ["f"]),
        node("Add", ["w", "w2"], ["w3"]),
        node("MatMul", ["f", "w3"], ["y"]),
    ]
    values = {
        "k": rng.normal(size=(16, 3, 3, 3)).astype("f"),
        **{n: (rng.random(16) + 0.5).astype("f") for n in "sbmv"},
        "zero": np.array([0]),
        "minus": np.array([-1]),
        **{n: rng.normal(size=(16, 10)).astype("f") for n in ("w", "w2")},
    }
    return nodes, {"x": ("f", ["batch", 3, "height", "width"])}, {"y": ("f", ["batch", 10])}, values


@pytest.fixture
def requests(rng):
    return [{"x": rng.normal(size=(n, 3, h, w)).astype("f")} for n, h, w in ((1, 8, 8), (3, 12, 9))]


def by_name(done):
    return {step.name: step for step in done.steps}


@pytest.mark.parametrize("external", [False, True], ids=["inline", "external"])
def test_folding_makes_a_graph_smaller_and_keeps_free_dimensions(
    graph, target, same, operators, requests, rng, external
):
    path = graph(*shaped(rng), external=external)
    done = optimise(path, requests, target, LIMITS)
    more = [{"x": rng.normal(size=(7, 3, 5, 30)).astype("f")}]
    same(path, target, requests + more, rtol=1e-4, atol=1e-5)
    assert not {"BatchNormalization", "Identity", "Add"} & set(operators(target))
    step = by_name(done)["constant folding"]
    assert (step.kept, step.why) == (True, "all answers equal")
    assert step.after.nodes < step.before.nodes
    assert step.pace.before > 0
    assert done.applied.after.nodes < done.applied.before.nodes
    assert [o.domain for o in onnx.load(target, load_external_data=False).opset_import] == [""]
    assert (target.parent / "model.onnx.data").exists() == external
    assert not [p for p in target.parent.iterdir() if p.name.startswith(".")]


def test_two_runs_write_and_report_the_same(graph, target, requests, rng):
    path = graph(*shaped(rng), external=True)
    made = []
    for _ in range(2):
        done = optimise(path, requests, target, LIMITS)
        made.append((target.read_bytes(), target.with_name("model.onnx.data").read_bytes(), done.applied))
    assert made[0] == made[1]


def test_a_graph_that_cannot_get_smaller_is_written_as_it_is(graph, target, same, operators):
    path = graph([node("Abs", ["x"], ["y"])], {"x": ("f", ["n"])}, {"y": ("f", ["n"])})
    asked = [{"x": np.float32([-1, 2])}]
    done = optimise(path, asked, target, LIMITS)
    same(path, target, asked, rtol=0, atol=0)
    assert done.applied.detail == "no step made the graph smaller"
    assert {step.why for step in done.steps} == {"neither fewer nodes nor fewer bytes"}


@pytest.fixture
def only(monkeypatch):
    """Replaces all steps by one of a test's own."""

    def replace(step, name="constant folding"):
        monkeypatch.setattr(module, "STEPS", {name: step})

    return replace


def changed(change):
    def step(model, folder):
        proto = onnx.load(model)
        change(proto)
        onnx.save(proto, folder / "made.onnx")
        return folder / "made.onnx"

    return step


def drop_relu(proto):
    at = next(i for i, n in enumerate(proto.graph.node) if n.op_type == "Relu")
    relu = proto.graph.node[at]
    for other in proto.graph.node:
        other.input[:] = [relu.input[0] if name == relu.output[0] else name for name in other.input]
    del proto.graph.node[at]


def rename_output(proto):
    proto.graph.output[0].name = proto.graph.node[-1].output[0] = "z"
    drop_relu(proto)


def own_domain(proto):
    drop_relu(proto)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    proto.graph.node[0].op_type, proto.graph.node[0].domain = "FusedConv", "com.microsoft"


def newer(proto):
    drop_relu(proto)
    proto.opset_import[0].version = 19


def drop_everything(proto):
    del proto.graph.node[:]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (drop_relu, "request 0 is answered differently"),
        (rename_output, "the outputs of the graph changed: y became z"),
        (own_domain, "it needs operators of com.microsoft"),
        (newer, "it needs opset 19 of ai.onnx, at most 17 loads"),
        (drop_everything, "the transformed graph is not valid ONNX"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_step_that_breaks_something_is_dropped(graph, target, same, requests, rng, only, change, why):
    path = graph(*shaped(rng))
    only(changed(change))
    (step,) = optimise(path, requests, target, LIMITS).steps
    assert not step.kept
    assert step.why.startswith(why)
    same(path, target, requests, rtol=0, atol=0)


def test_a_difference_that_only_the_last_request_shows_is_found(graph, target, only):
    nodes = [node("Abs", ["x"], ["a"]), node("Relu", ["a"], ["b"]), node("Neg", ["b"], ["y"])]
    path = graph(nodes, {"x": ("f", ["n"])}, {"y": ("f", ["n"])})

    def cut(proto):
        del proto.graph.node[0]
        proto.graph.node[0].input[0] = "x"

    only(changed(cut))
    good, bad = {"x": np.float32([1])}, {"x": np.float32([-1])}
    assert optimise(path, [good], target, LIMITS).steps[0].kept
    assert not optimise(path, [good, bad], target, LIMITS).steps[0].kept


def test_bounds_decide_what_is_equal(graph, target, only):
    nodes = [node("Mul", ["x", "k"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["y"])]
    path = graph(nodes, {"x": ("f", ["n"])}, {"y": ("f", ["n"])}, {"k": np.float32(1.001)})

    def cut(proto):
        del proto.graph.node[0]
        proto.graph.node[0].input[0] = "x"
        del proto.graph.initializer[:]

    only(changed(cut))
    asked = [{"x": np.float32([1, 2])}]
    assert not optimise(path, asked, target, LIMITS).steps[0].kept
    assert optimise(path, asked, target, LIMITS, bounds=Bounds(0, 1e-2)).steps[0].kept


def test_a_step_that_fails_or_cannot_be_tried_costs_only_itself(
    graph, target, same, requests, rng, monkeypatch
):
    def broken(model, folder):
        raise RuntimeError(f"no way in {model}")

    def absent(model, folder):
        raise steps.Skipped("not here")

    monkeypatch.setattr(module, "STEPS", {"a": broken, "b": absent, "constant folding": steps.fold})
    path = graph(*shaped(rng))
    done = by_name(optimise(path, requests, target, LIMITS))
    assert done["a"].why == "it fails: RuntimeError: no way in origin.onnx"
    assert done["b"].why == "not tried: not here"
    assert done["constant folding"].kept
    same(path, target, requests, rtol=1e-4, atol=1e-5)


def test_a_model_too_large_for_onnxslim_is_not_given_to_it(graph, target, requests, rng, monkeypatch):
    monkeypatch.setattr(steps, "LARGEST_FOR_ONNXSLIM", 100)
    done = by_name(optimise(graph(*shaped(rng)), requests, target, LIMITS))
    assert done["onnxslim"].why.startswith("not tried: the model has ")
    assert "onnxslim" not in {
        tool.name for tool in optimise(graph(*shaped(rng)), requests, target, LIMITS).applied.tools
    }


@pytest.mark.parametrize(
    ("paces", "kept"),
    [([(1, 2), (1, 2), (1, 2)], False), ([(1, 2), (1, 1.4)], True), ([(0.01, 0.05)], True), ([(3, 1)], True)],
    ids=["slower each time", "slower once", "too short to tell", "faster"],
)
def test_a_step_that_is_slower_in_every_measurement_is_dropped(
    graph, target, requests, rng, only, monkeypatch, paces, kept
):
    left = iter(paces)
    monkeypatch.setattr(module, "pace", lambda *_: timing.Pace(*next(left)))
    only(steps.fold)
    (step,) = optimise(graph(*shaped(rng)), requests, target, LIMITS).steps
    assert (step.kept, step.pace) == (kept, timing.Pace(*paces[0]))
    assert next(left, None) is None


def test_operators_of_onnx_runtime_come_in_only_if_allowed(graph, target, same, operators, requests, rng):
    path = graph(*shaped(rng))
    optimise(path, requests, target, LIMITS)
    assert "FusedConv" not in operators(target)
    done = optimise(path, requests, target, LIMITS, runtime_only=True)
    assert by_name(done)["extended fusion"].kept
    assert "FusedConv" in operators(target)
    assert {o.domain for o in onnx.load(target).opset_import} == {"", "com.microsoft"}


def test_branches_weights_as_inputs_text_and_whole_numbers(graph, target, same, rng):
    def branch(name, kind):
        return helper.make_graph(
            [
                node("Add", ["u", "v"], [f"{name}0"]),
                node(kind, ["x"], [f"{name}1"]),
                node("Mul", [f"{name}1", f"{name}0"], [name]),
            ],
            name,
            [],
            [helper.make_tensor_value_info(name, 1, ["n", 4])],
        )

    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "w"], ["c"]),
        node("If", ["c"], ["y"], then_branch=branch("t", "Relu"), else_branch=branch("e", "Abs")),
        node("Identity", ["text"], ["text2"]),
        node("Identity", ["text2"], ["out"]),
        node("Shape", ["y"], ["shape"]),
    ]
    path = graph(
        nodes,
        {"x": ("f", ["n", 4]), "text": ("s", ["k"])},
        {"y": ("f", ["n", 4]), "out": ("s", ["k"]), "shape": ("i", [2])},
        {"u": np.float32(1), "v": np.float32(2), "w": np.float32(0)},
        weights_as_inputs=["w"],
    )
    base = {"text": np.array(["a", ""], dtype=object)}
    asked = [{**base, "x": np.full((n, 4), v, "f")} for n, v in ((1, 1), (2, -1), (0, 1))]
    done = optimise(path, asked, target, LIMITS)
    given = [{**r, "w": np.array(100, "f")} for r in asked]
    same(path, target, asked + given, rtol=1e-6, atol=0)
    assert done.applied.after.nodes < done.applied.before.nodes


def test_nan_is_equal_to_nan(graph, target, same):
    nodes = [node("Log", ["x"], ["a"]), node("Identity", ["a"], ["b"]), node("Neg", ["b"], ["y"])]
    path = graph(nodes, {"x": ("f", ["n"])}, {"y": ("f", ["n"])})
    asked = [{"x": np.float32([-1, 0, 1, np.inf, np.nan])}]
    assert optimise(path, asked, target, LIMITS).steps[0].kept
    same(path, target, asked, rtol=0, atol=0)


def test_the_folders_of_a_refused_run_are_gone(tmp_path, target):
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(Exception, match="not an ONNX model"):
        optimise(tmp_path / "bad.onnx", [], target, LIMITS)
    assert list(target.parent.iterdir()) == []
