"""Nodes on which ONNX Runtime crashes in float16 are found, and stay float32."""

import onnx
import pytest
from onnx import helper

from repobuild.transforms import half, probe
from repobuild.transforms.half import Half


@pytest.fixture
def chain(graph):
    """``chain(n)``: so many nodes behind one another, named ``n0``, ``n1``, ..."""

    def make(count):
        names = ["x", *(f"t{i}" for i in range(count - 1)), "y"]
        nodes = [helper.make_node("Relu", [names[i]], [names[i + 1]], name=f"n{i}") for i in range(count)]
        return graph(nodes, {"x": ("f", ["n", 4])}, {"y": ("f", ["n", 4])})

    return make


def in_float16(path):
    """Names of the nodes that read float16."""
    proto = onnx.shape_inference.infer_shapes(onnx.load(path))
    types = {v.name: v.type.tensor_type.elem_type for v in (*proto.graph.value_info, *proto.graph.input)}
    return {n.name for n in proto.graph.node if types[n.input[0]] == onnx.TensorProto.FLOAT16}


@pytest.mark.parametrize("bad", [{"n0"}, {"n6"}, {"n2", "n5"}], ids=["first", "last", "two"])
def test_nodes_with_which_crashes_begin_stay_float32_by_name(chain, target, same, monkeypatch, rng, bad):
    monkeypatch.setattr(half, "crashes", lambda path: bool(in_float16(path) & bad))
    path, asked = chain(7), [{"x": rng.normal(size=(3, 4)).astype("f")}]
    done = Half().apply(path, asked, target)
    made = in_float16(target)
    assert not made & bad
    assert made >= {f"n{i}" for i in range(7)} - bad
    assert all(f"Relu '{name}'" in done.notes[0] for name in bad)
    assert "nodes stay float32 since ONNX Runtime would crash: " in done.notes[0]
    same(path, target, asked)


def test_a_process_that_dies_is_told_from_one_that_refuses(chain, tmp_path, monkeypatch):
    path = chain(2)
    assert not probe.crashes(path)
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no graph")
    assert not probe.crashes(broken)
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setenv("PYTHONPATH", str(hook))
    assert probe.crashes(path)


def test_one_that_crashes_whatever_stays_float32_ends_after_a_bounded_search(chain, target, monkeypatch, rng):
    asked = []
    monkeypatch.setattr(half, "crashes", lambda path: asked.append(path) or True)
    Half().apply(chain(8), [{"x": rng.normal(size=(3, 4)).astype("f")}], target)
    assert 4 <= len(asked) <= 4 * 4
