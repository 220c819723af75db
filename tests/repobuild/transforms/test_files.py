"""ONNX files whose weights stay on disk."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from repobuild.errors import ConversionFailed, InputInvalid
from repobuild.transforms import files
from repobuild.transforms.files import opened, size_of
from repobuild.transforms.half import Half
from repobuild.transforms.writing import Writer

node = helper.make_node
IN, OUT = {"x": ("f", ["n", 64])}, {"y": ("f", ["n", 64])}
NODES = [node("MatMul", ["x", "a"], ["h"]), node("Add", ["h", "b"], ["y"])]


@pytest.fixture
def weights(rng):
    return {"a": rng.normal(size=(64, 64)).astype("f"), "b": rng.normal(size=64).astype("f")}


def held(path):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


@pytest.mark.parametrize("external", [False, True], ids=["inline", "external"])
def test_what_is_read_is_written(graph, target, weights, external):
    path = graph(NODES, IN, OUT, weights, external=external)
    with opened(path) as source:
        tensors = {t.name: source.array(t) for t in source.proto.graph.initializer}
        np.testing.assert_array_equal(tensors["a"], weights["a"])
        assert isinstance(tensors["a"], np.memmap) == external
        with Writer(source, target) as writer:
            writer.finish(source.copy())
    for name, array in held(target).items():
        np.testing.assert_array_equal(array, weights[name])
    assert size_of(target).nodes == 2
    assert target.with_name("model.onnx.data").exists() == external


def test_large_inline_weights_are_moved_out_of_memory_and_back(graph, target, weights, monkeypatch):
    path = graph(NODES, IN, OUT, weights)
    monkeypatch.setattr(files, "SPILL", 100)
    with opened(path) as source:
        assert source.spilled
        assert not source.external
        assert source.proto.ByteSize() < 2000
        with Writer(source, target) as writer:
            writer.finish(source.copy())
    assert [p.name for p in target.parent.iterdir()] == ["model.onnx"]
    np.testing.assert_array_equal(held(target)["a"], weights["a"])


def test_spilled_weights_are_measured_and_converted(graph, target, same, rng, weights, monkeypatch):
    path = graph(NODES, IN, OUT, weights)
    monkeypatch.setattr(files, "SPILL", 100)
    asked = [{"x": rng.normal(size=(2, 64)).astype("f")}]
    Half().apply(path, asked, target)
    same(path, target, asked, rtol=1e-2, atol=5e-2)


def test_weights_that_share_bytes_still_do(graph, target, weights):
    path = graph(NODES, IN, OUT, weights, external=True)
    proto = onnx.load(path, load_external_data=False)
    again = proto.graph.initializer.add()
    again.CopyFrom(proto.graph.initializer[0])
    again.name = "tied"
    proto.graph.node.append(node("MatMul", ["y", "tied"], ["z"]))
    proto.graph.output[0].name = "z"
    path.write_bytes(proto.SerializeToString())
    done = Half().apply(path, [{"x": np.ones((1, 64), "f")}], target)
    assert target.with_name("model.onnx.data").stat().st_size < 2 * 64 * 64 + 2 * 4096
    assert done.after.bytes < done.before.bytes
    assert (held(target)["a"] == held(target)["tied"]).all()


def test_the_target_may_have_the_name_of_the_source(graph, target, weights):
    path = graph(NODES, IN, OUT, weights, external=True)
    assert path.name == target.name
    before = path.read_bytes(), path.with_name("model.onnx.data").read_bytes()
    Half().apply(path, [{"x": np.ones((1, 64), "f")}], target)
    assert (path.read_bytes(), path.with_name("model.onnx.data").read_bytes()) == before
    np.testing.assert_array_equal(held(target)["a"], weights["a"].astype("f2"))


def spoil(path, key, value):
    proto = onnx.load(path, load_external_data=False)
    tensor = next(t for t in proto.graph.initializer if t.external_data)
    for entry in tensor.external_data:
        if entry.key == key:
            entry.value = value
    path.write_bytes(proto.SerializeToString())


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("location", "../secret.data", "not inside the model's folder"),
        ("location", "/etc/hostname", "not inside the model's folder"),
        ("location", "gone.data", "no such file"),
        ("location", "", "not inside"),
        ("offset", "999999", "bytes 999999 to "),
        ("length", "-4", "bytes 0 to -4"),
        ("length", "8000", "8000 bytes for shape [64, 64]"),
        ("offset", "many", "no number"),
    ],
)
def test_data_that_cannot_be_read_is_named(graph, target, weights, key, value, why):
    path = graph(NODES, IN, OUT, weights, external=True)
    (path.parent.parent / "secret.data").write_bytes(bytes(20000))
    spoil(path, key, value)
    with pytest.raises(InputInvalid) as caught:
        Half().apply(path, [{"x": np.ones((1, 64), "f")}], target)
    assert caught.value.code == "external-data-unreadable"
    assert why in str(caught.value)
    assert "tensor 'a'" in str(caught.value)
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"no model", b"\x08\x07"], ids=["empty", "text", "no graph"])
def test_a_file_that_is_no_model_is_refused(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ConversionFailed) as caught:
        size_of(path)
    assert caught.value.code == "graph-invalid"


def test_small_external_tensors_come_into_the_file(tmp_path, target, weights):
    proto = helper.make_model(
        helper.make_graph(
            [node("Reshape", ["x", "to"], ["r"]), node("MatMul", ["r", "a"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8, 8])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])],
            [numpy_helper.from_array(np.array([-1, 64]), "to"), numpy_helper.from_array(weights["a"], "a")],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    path = tmp_path / "all.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="all.data", size_threshold=0)
    Half().apply(path, [{"x": np.ones((2, 8, 8), "f")}], target)
    kinds = {t.name: t.data_location for t in onnx.load(target, load_external_data=False).graph.initializer}
    assert kinds == {"to": TensorProto.DEFAULT, "a": TensorProto.EXTERNAL}


def test_a_failure_leaves_no_files(graph, target, weights):
    path = graph(NODES, IN, OUT, weights, external=True)

    def fail(source):
        with Writer(source, target) as writer:
            proto = source.copy()
            writer.put(proto.graph.initializer[0], weights["a"].astype("f2"), TensorProto.FLOAT16)
            assert target.with_name("model.onnx.data").exists()
            raise KeyError

    with opened(path) as source, pytest.raises(KeyError):
        fail(source)
    assert list(target.parent.iterdir()) == []
