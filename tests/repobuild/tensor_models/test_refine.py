"""Precisions and optimisation through the command line: what is served, what is refused, what is told."""

import json
import textwrap

import numpy as np
import onnx
import pytest
import torch

from tests.repobuild.tensor_models.conftest import rows

MLP = """
    class Net(nn.Module):
        def __init__(self, scale=1.0):
            super().__init__()
            self.first, self.last = nn.Linear(16, 64), nn.Linear(64, 4)
            self.scale = scale

        def forward(self, x):
            return self.last(self.first(x).relu() * self.scale / self.scale)
"""
CNN = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.last = nn.Conv2d(3, 16, 3), nn.Linear(16, 4)

        def forward(self, x):
            return self.last(self.conv(x).relu().mean((2, 3)))
"""
LOOSE = {"atol": 0.2, "rtol": 0.2}


def at(precision, **more):
    """Keys of a recipe that asks for a precision."""
    return {"targets": [{"kind": "onnxruntime", "precision": precision}], **more}


@pytest.fixture
def built(convert, tmp_path):
    """Convert a project, and give its graph and its report: ``graph, report = built(net)``."""

    def run(project, *words):
        outcome = convert(project, *words)
        assert outcome.status == 0, outcome.err + outcome.out
        graph = onnx.load(tmp_path / "repository" / "model" / "1" / "model.onnx")
        [report] = (tmp_path / "repository.repobuild").rglob("report.json")
        return graph, json.loads(report.read_text())

    return run


def refused(outcome, status, tmp_path):
    """A refusal left nothing, and showed no traceback; what it said."""
    assert outcome.status == status, outcome.err + outcome.out
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "repository" / "model").exists()
    assert not list((tmp_path / "repository.repobuild").rglob("report.json"))
    return " ".join(outcome.err.split())


def weight_types(graph):
    """Element types of the weights of more than one axis."""
    return {t.data_type for t in graph.graph.initializer if len(t.dims) > 1}


STORED = {"fp16": 10, "bf16": 16, "int8": 3, "int8-dynamic": 3}


@pytest.mark.parametrize("precision", STORED)
def test_each_precision_is_served_and_told_of(net, built, precision):
    options = at(precision, tolerance=LOOSE) if precision.startswith("int8") else at(precision)
    graph, report = built(net(MLP, {"x": rows(40, 16)}, **options))
    assert STORED[precision] in weight_types(graph)
    assert precision == "bf16" or onnx.TensorProto.FLOAT not in weight_types(graph)  # bf16 leaves 1 KiB alone
    assert graph.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert report["transform"]["precision"] == precision
    assert report["transform"]["detail"] in " ".join(report["notes"])
    checks = {c["name"] for c in report["checks"]}
    assert ("equal in real float16" in checks) == (precision == "fp16")


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_convolutions_too(net, built, precision):
    options = at(precision, tolerance=LOOSE)
    graph, _ = built(net(CNN, {"x": rows(20, 3, 8, 8)}, **options))
    assert STORED[precision] in weight_types(graph)


@pytest.mark.parametrize(
    "precision",
    ["fp16", "int8", *(pytest.param(p, marks=pytest.mark.slow) for p in ("bf16", "int8-dynamic"))],
)
def test_two_builds_are_byte_identical(net, repobuild_cli, tmp_path, tree, precision):
    options = at(precision, tolerance=LOOSE) if precision.startswith("int8") else at(precision)
    project = net(MLP, {"x": rows(12, 16)}, **options)
    for name in ("one", "two"):
        words = ("convert", project.recipe, "--repository", tmp_path / name, "--trust", "module")
        assert repobuild_cli(*words).status == 0
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    assert tree(tmp_path / "one.repobuild") == tree(tmp_path / "two.repobuild")


@pytest.mark.parametrize("precision", ["int8", "int8-static", "int8-dynamic"])
def test_int8_without_a_statement_is_refused(net, convert, tmp_path, precision):
    said = refused(convert(net(MLP, {"x": rows(12, 16)}, **at(precision))), 3, tmp_path)
    assert "precision-unstated" in said
    assert f"precision: {precision}" in said


@pytest.mark.parametrize("kept", [True, False])
def test_a_budget_of_accuracy_decides(net, convert, tmp_path, kept):
    """The classes that the model itself gives are the truth, or those that the int8 graph gives otherwise."""
    samples = rows(200, 16)
    if not kept:
        samples[:, 0] *= 40  # one column takes the whole range, so that 256 steps leave little of the others
    project = net(
        MLP,
        {"x": samples},
        **at("int8", labels="labels.npy", budget={"accuracy_drop": 0.02 if kept else 0.0}),
    )
    module = project.module()
    module.load_state_dict(torch.load(project.home / "weights.pt", weights_only=True))
    with torch.no_grad():
        np.save(project.home / "labels.npy", module(torch.from_numpy(samples)).argmax(1).numpy())
    outcome = convert(project)
    if kept:
        assert outcome.status == 0, outcome.err
        [report] = (tmp_path / "repository.repobuild").rglob("report.json")
        [metric] = json.loads(report.read_text())["metrics"]
        assert metric["model"] == 1.0
        assert metric["artifact"] >= 0.98
    else:
        assert "budget: accuracy_drop" in refused(outcome, 4, tmp_path)


def test_nodes_that_overflow_stay_float32_by_name(net, built):
    graph, report = built(net(MLP, {"x": rows(12, 16)}, kwargs={"scale": 1e6}, **at("fp16")))
    assert "nodes stay float32 for their values" in " ".join(report["notes"])
    assert any("float16 ends at 65504" in note for note in report["transform"]["notes"])
    assert onnx.TensorProto.FLOAT16 in weight_types(graph)


def test_a_stated_tolerance_that_fits_the_samples_fits_larger_values_too(net, built, convert, tmp_path):
    """float16 is off in proportion to the values, which are eight times as large in one edge request."""
    code = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(16, 64, bias=False), nn.Linear(64, 4, bias=False)

        def forward(self, x):
            return self.last(self.first(x))
    """
    project = net(code, {"x": rows(16, 16)}, **at("fp16", tolerance={"atol": 1.0, "rtol": 0}))
    _, report = built(project)
    [off] = [c["worst"]["absolute"] for c in report["checks"] if c["name"] == "equal in real float16"]
    [near] = [c["worst"]["absolute"] for c in report["checks"] if c["name"] == "equal: output"]
    assert 1e-4 < near * 4 < off
    project.edit(tolerance={"atol": near * 3, "rtol": 0})
    built(project)
    project.edit(tolerance={"atol": near / 3, "rtol": 0})
    assert "check-failed" in convert(project).err


def test_a_tolerance_that_int8_breaks_fails_the_build_and_bisect_names_a_node(net, convert, tmp_path):
    options = at("int8", tolerance={"atol": 1e-6, "rtol": 1e-6})
    project = net(MLP, {"x": rows(12, 16)}, **options)
    assert "first node" not in refused(convert(project), 4, tmp_path)
    said = refused(convert(project, "--bisect"), 4, tmp_path)
    assert "bisect" in said
    assert any(kind in said for kind in ("Gemm", "MatMul", "QuantizeLinear", "DequantizeLinear", "Relu"))


def test_optimisation_is_told_of_step_by_step_and_can_be_left_out(net, built, tmp_path):
    folded = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 3)

            def forward(self, x):
                return self.lin(torch.dropout(x, 0.5, False)).reshape(x.shape[0], 3) + torch.zeros(3)
    """
    project = net(folded, {"x": rows(5, 4)})
    optimised, report = built(project)
    assert report["optimisation"]
    assert all(isinstance(step, str) for step in report["optimisation"])
    (tmp_path / "repository").rename(tmp_path / "first")
    (tmp_path / "repository.repobuild").rename(tmp_path / "first.repobuild")
    project.edit(export={"optimise": False})
    plain, report = built(project)
    assert "optimisation" not in report
    assert "transform" not in report
    assert len(plain.graph.node) >= len(optimised.graph.node)


def test_a_crash_of_the_runtime_is_an_error(net, convert, tmp_path, monkeypatch):
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        textwrap.dedent("""
            import os, signal
            from repobuild.transforms.half import Half
            Half.apply = lambda *given: os.kill(os.getpid(), signal.SIGSEGV)
        """)
    )
    monkeypatch.setenv("PYTHONPATH", str(hook))
    said = refused(convert(net(MLP, {"x": rows(5, 16)}, **at("fp16"))), 5, tmp_path)
    assert "runtime-crashes" in said
    assert "ONNX Runtime crashes on the graph in fp16" in said
    assert not [p for p in tmp_path.rglob("*") if p.name in ("refine", "requests.npz")], "nothing is left"


def test_recipes_of_scikit_learn_are_left_alone_unless_they_ask(risk_project, repobuild_cli, tmp_path):
    recipe = risk_project / "recipe.yaml"
    reports = []
    for name, more in (("plain", {}), ("asked", {"export": {"optimise": True}})):
        document = json.loads(recipe.read_text()) | more
        recipe.write_text(json.dumps(document))
        words = ("convert", risk_project, "--repository", tmp_path / name, "--trust", "pickle")
        outcome = repobuild_cli(*words)
        assert outcome.status == 0, outcome.err
        [report] = (tmp_path / f"{name}.repobuild").rglob("report.json")
        reports.append(json.loads(report.read_text()))
    assert "optimisation" not in reports[0]
    assert "transform" not in reports[0]
    assert reports[1]["optimisation"]
