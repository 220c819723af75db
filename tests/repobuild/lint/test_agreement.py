"""Lint says what a server does: the same models, once read and once loaded by the bundled server."""

from __future__ import annotations

import json
import random
import urllib.request

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from repobuild.lint.finding import Severity
from repobuild.lint.run import lint
from repobuild.releases import newest

MODELS = 150


def value(name, shape):
    """A float32 tensor."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def product(first, declared):
    """x times a constant [2, 3]."""
    weights = numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return helper.make_graph(nodes, "g", [value("x", [first, 2])], [value("y", declared)], [weights])


def total(axes, declared):
    """The sum of x over an axis, or over all."""
    nodes = [helper.make_node("ReduceSum", ["x", *(["a"] if axes else [])], ["y"], keepdims=0)]
    constants = [numpy_helper.from_array(np.array([1], np.int64), "a")] if axes else []
    return helper.make_graph(nodes, "g", [value("x", ["n", "m"])], [value("y", declared)], constants)


def pair():
    """Two inputs, two outputs."""
    nodes = [helper.make_node("Add", ["x", "u"], ["y"]), helper.make_node("Identity", ["x"], ["z"])]
    sides = [[value(n, ["n", 2]) for n in names] for names in (("x", "u"), ("y", "z"))]
    return helper.make_graph(nodes, "g", *sides)


GRAPHS = (
    product("n", ["n", 3]),
    product("n", ["n", "k"]),
    product(4, [4, 3]),
    product("n", None),
    total(True, ["n"]),
    total(False, []),
    pair(),
)
DIMS = ([1], [2], [3], [-1], [-1, 2], [-1, 3], [4, 2], [4, 3], [-1, -1])


def tensor(dice, kind, item, batched):
    """A tensor of the graph in the configuration's words, most of the time as it is."""
    field = item.type.tensor_type
    shape = [d.dim_value or -1 for d in field.shape.dim] if field.HasField("shape") else [-1, 3]
    dims = shape[1:] if batched and shape[:1] == [-1] else shape
    dims = list(dice.choice(DIMS)) if dice.random() < 0.15 else dims
    dims = [3 if d == -1 and dice.random() < 0.2 else d for d in dims]
    name = item.name if dice.random() < 0.97 else "other"
    words = [f'name: "{name}"', f"data_type: {'TYPE_FP32' if dice.random() < 0.96 else 'TYPE_FP64'}"]
    words.append(f"dims: {dims or [1]}")
    if not dims and batched and dice.random() < 0.8:
        words.append("reshape { shape: [] }")
    return f"{kind} {{ {' '.join(words)} }}\n"


def written(dice, graph):
    """A configuration of the graph with a mistake here and there."""
    batched = dice.choice([None, 0, 8, 8, 8])
    lines = ['backend: "onnxruntime"\n', "" if batched is None else f"max_batch_size: {batched}\n"]
    for kind, items in (("input", graph.input), ("output", graph.output)):
        if dice.random() < 0.85:
            lines += [tensor(dice, kind, item, batched) for item in items if dice.random() < 0.95]
    return "".join(lines)


def test_lint_finds_errors_where_the_server_refuses_and_nowhere_else(tmp_path, served):
    """Of random configurations, exactly those load in which no error is found."""
    pytest.importorskip("onnxruntime")
    dice = random.Random(20)
    root = tmp_path / "models"
    for number in range(MODELS):
        graph = dice.choice(GRAPHS)
        folder = root / f"m{number}" / "1"
        folder.mkdir(parents=True)
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        (folder.parent / "config.pbtxt").write_text(written(dice, graph))
    found = lint(root, newest()).findings
    wrong = {f.file.split("/")[0] for f in found if f.severity is Severity.ERROR}
    with served(root, "--no-exit-on-error") as server:
        request = urllib.request.Request(f"{server.address}/v2/repository/index", b"{}")
        with urllib.request.urlopen(request, timeout=30) as reply:
            index = json.load(reply)
    refused = {m["name"] for m in index if m.get("state") != "READY"}
    assert len(index) == MODELS
    assert 30 < len(refused) < MODELS - 30
    assert wrong == refused
