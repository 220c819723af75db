"""Weights that lie beside a graph, or are laid there: opsets change without them, and none is lost."""

import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from repobuild.graph import external
from repobuild.graph.normal import raise_opset, to_opset
from repobuild.graph.versions import Unconvertible, converted
from repobuild.sources import onnx_file

F = np.float32
WEIGHT = np.random.default_rng(0).standard_normal((3, 400)).astype(F)


def product(opset=13):
    """``y = x @ w + b`` whose weights are 4800 and 1600 bytes, with an operator that opset 13 changed."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]>\n'
        "g (float[N,3] x) => (float[N,400] y) { a = MatMul(x, w) y = Add(a, b) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(WEIGHT, "w"))
    model.graph.initializer.append(numpy_helper.from_array(WEIGHT[0], "b"))
    return model


def beside(model, folder):
    """The model with its weights in a file."""
    path = folder / "model.onnx"
    external.store(model, folder, path, embed=0)
    return external.load_graph(path)


def values(model, folder):
    external.embed_small(model, folder)
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


@pytest.mark.parametrize("change", [lambda m: raise_opset(m, 20), lambda m: to_opset(m, 14, 20)[0]])
def test_opsets_change_and_weights_beside_the_graph_stay(change, tmp_path):
    made = change(beside(product(15), tmp_path))
    assert made.opset_import[0].version in (20, 14)
    assert [i.name for i in made.graph.input] == ["x"]
    assert all(t.data_location == onnx.TensorProto.EXTERNAL for t in made.graph.initializer)
    found = values(made, tmp_path)
    np.testing.assert_array_equal(found["w"], WEIGHT)
    np.testing.assert_array_equal(found["b"], WEIGHT[0])


def test_inputs_that_name_initialisers_stay_inputs():
    model = product()
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", 1, [3, 400]))
    assert [i.name for i in converted(model, 15).graph.input] == ["x", "w"]


def test_constants_that_the_converter_reads_are_shown_to_it():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 11]>\n'
        "g (float[N,3,1] x) => (float[N,3] y) { y = Squeeze<axes=[2]>(x) }"
    )
    up = converted(model, 13)
    assert len(up.graph.node[-1].input) == 2
    down = converted(up, 11)
    assert [list(a.ints) for n in down.graph.node for a in n.attribute if a.name == "axes"] == [[2]]


def test_weights_in_constants_of_nodes_are_not_lost_silently(tmp_path):
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 13]>\ng (float[N,3] x) => (float[N,400] y) { y = MatMul(x, w) }'
    )
    model.graph.node.insert(
        0, onnx.helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(WEIGHT))
    )
    with pytest.raises(Unconvertible, match="constants of nodes"):
        converted(beside(model, tmp_path), 15)


@pytest.mark.parametrize("wrong", [WEIGHT.tobytes()[:-4], WEIGHT.tobytes() + b"\0" * 4])
def test_a_tensor_with_other_bytes_than_its_shape_takes_is_not_stored(wrong, tmp_path):
    model = product()
    model.graph.initializer[0].raw_data = wrong
    with pytest.raises(external.ExternalDataUnsafe, match=r"'w' has \d+ bytes, and its shape takes 4800"):
        external.store(model, tmp_path, tmp_path / "model.onnx", embed=0)


def test_small_and_large_initialisers_are_attached(tmp_path):
    model, path = product(), tmp_path / "model.onnx"
    del model.graph.initializer[:]
    small = np.arange(3, dtype=np.int64)
    given = (("w", 1, [3, 400], WEIGHT), ("b", 7, [3], small), ("s", 7, [], np.array(5)))
    external.attach(model, given, path)
    made = external.load_graph(path)
    assert [t.data_location for t in made.graph.initializer] == [1, 0, 0]
    found = values(made, tmp_path)
    np.testing.assert_array_equal(found["w"], WEIGHT)
    np.testing.assert_array_equal(found["b"], small)
    assert found["s"].shape == ()


@pytest.fixture
def project(tmp_path):
    """A recipe for a file whose weights lie in the graph."""
    home = tmp_path / "project"
    home.mkdir()
    onnx.save(product(), home / "model.onnx")
    np.savez(home / "samples.npz", x=WEIGHT[:, :3])
    recipe = {"name": "model", "source": {"path": "model.onnx"}, "samples": "samples.npz"}
    (home / "recipe.yaml").write_text(json.dumps(recipe | {"serving": {"max_batch_size": 8}}))
    return home


def test_weights_of_a_large_file_are_laid_beside_it_first(project, repobuild_cli, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_file, "EMBED_BYTES", 100)
    laid = []
    store = external.store
    monkeypatch.setattr(external, "store", lambda *given: laid.append(given[2]) or store(*given, embed=0))
    outcome = repobuild_cli("convert", project, "--repository", tmp_path / "repository")
    assert outcome.status == 0, outcome.err
    assert laid[0].parent.name == onnx_file.STORED
    made = onnx.load(tmp_path / "repository" / "model" / "1" / "model.onnx")
    found = {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}
    assert any(np.array_equal(a, WEIGHT) for a in found.values())


def test_a_large_file_with_a_tensor_that_is_not_whole_is_refused(
    project, repobuild_cli, tmp_path, monkeypatch
):
    monkeypatch.setattr(onnx_file, "EMBED_BYTES", 100)
    store = external.store
    monkeypatch.setattr(external, "store", lambda *given: store(*given, embed=0))
    model = product()
    model.graph.initializer[0].raw_data = WEIGHT.tobytes()[:-4]
    (project / "model.onnx").write_bytes(model.SerializeToString())
    outcome = repobuild_cli("convert", project, "--repository", tmp_path / "repository")
    assert outcome.status == 3
    assert "model-damaged" in outcome.err
    assert "'w' has 4796 bytes, and its shape takes 4800" in outcome.err
    assert not (tmp_path / "repository").exists()
