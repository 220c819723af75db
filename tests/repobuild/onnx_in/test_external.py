"""Weights in files beside the graph: taken along, checked, refused where they lead elsewhere."""

import json
import shutil

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from repobuild.errors import RepobuildError
from repobuild.recipe.types import Recipe, SourceRecipe
from repobuild.sources.onnx_file import OnnxSource


def tensor(name, shape, location, offset=0, length=None):
    """A float32 tensor that says where its values lie."""
    made = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    entries = {"location": location, "offset": str(offset)}
    if length is not None:
        entries["length"] = str(length)
    for key, value in entries.items():
        made.external_data.add(key=key, value=value)
    return made


def model(*weights, width=4):
    """Adds up to the input a sum of weights of one row each."""
    nodes, last = [], "x"
    for weight in weights:
        nodes.append(helper.make_node("Add", [last, weight.name], [f"after_{weight.name}"]))
        last = f"after_{weight.name}"
    nodes.append(helper.make_node("Identity", [last], ["y"]))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", width]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    np.savez(folder / "samples.npz", x=np.random.RandomState(0).rand(6, 4).astype(np.float32))
    return folder


def recipe(home):
    path = home / "recipe.yaml"
    path.write_text(json.dumps({"name": "model", "source": {"path": "model.onnx"}, "samples": "samples.npz"}))
    return path


def opened(home, tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    given = Recipe("model", SourceRecipe(home / "model.onnx", "model.onnx", "onnx"), None, "", folder=home)
    return OnnxSource(given, inner)


def refused(home, tmp_path):
    """What is said of a model whose external data cannot be used."""
    with pytest.raises(RepobuildError) as told, opened(home, tmp_path) as source:
        source.describe_tensors(source._recipe, {"columns": [{"name": "x", "shape": [6, 4]}], "named": True})
    assert told.value.code == "external-data"
    return " | ".join(e.text for e in told.value.evidence)


def test_several_files_in_subfolders_with_shared_ranges(home, tmp_path, repobuild_cli):
    (home / "weights" / "deep").mkdir(parents=True)
    np.arange(8, dtype=np.float32).tofile(home / "weights" / "a.bin")
    np.full(4, 100, np.float32).tofile(home / "weights" / "deep" / "b.bin")
    made = model(
        tensor("first", [4], "weights/a.bin", 0, 16),
        tensor("again", [4], "weights/a.bin", 0, 16),
        tensor("overlaps", [4], "weights/a.bin", 8, 16),
        tensor("rest", [4], "weights/deep/b.bin"),
    )
    onnx.save(made, home / "model.onnx")
    outcome = repobuild_cli("convert", recipe(home), "-r", tmp_path / "models")
    assert outcome.status == 0, outcome.err
    version = tmp_path / "models" / "model" / "1"
    assert [p.name for p in version.iterdir()] == ["model.onnx"]
    session = ort.InferenceSession(version / "model.onnx", providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"x": np.zeros((1, 4), np.float32)})
    assert got.tolist() == [[102, 105, 108, 111]]


def test_weights_too_large_for_the_graph_stay_beside_it(home, tmp_path, repobuild_cli):
    width = 4 << 20
    values = np.arange(5 * width, dtype=np.float32)
    values.tofile(home / "big.bin")
    table = tensor("table", [5, width], "big.bin")
    nodes = [
        helper.make_node("Gather", ["table", "row"], ["rows"]),
        helper.make_node("Slice", ["rows", "from", "to", "axis"], ["y"]),
    ]
    small = [
        numpy_helper.from_array(np.array(v, np.int64), n)
        for n, v in (("from", [2]), ("to", [5]), ("axis", [1]))
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("row", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [table, *small],
    )
    onnx.save(
        helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]),
        home / "model.onnx",
    )
    np.savez(home / "samples.npz", row=np.arange(5))
    given, repository = recipe(home), tmp_path / "models"
    outcome = repobuild_cli("convert", given, "-r", repository)
    assert outcome.status == 0, outcome.err
    version = repository / "model" / "1"
    assert sorted(p.name for p in version.iterdir()) == ["model.onnx", "model.onnx.data"]
    assert (version / "model.onnx").stat().st_size < 1 << 16

    again = repobuild_cli("convert", given, "-r", repository)
    assert again.status == 0, again.err
    assert [p.name for p in (repository / "model").iterdir() if p.name.isdigit()] == ["1"]

    for command in ("lint", "validate"):
        outcome = repobuild_cli(command, repository)
        assert outcome.status == 0, outcome.out + outcome.err
    outcome = repobuild_cli("inspect", version / "model.onnx")
    assert outcome.status == 0, outcome.err

    moved = tmp_path / "elsewhere"
    shutil.copytree(repository, moved)
    shutil.rmtree(repository)
    shutil.rmtree(home)
    session = ort.InferenceSession(moved / "model" / "1" / "model.onnx", providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"row": np.array([[3]])})
    assert got.tolist() == [values[3 * width + 2 : 3 * width + 5].tolist()]

    (moved / "model" / "1" / "model.onnx.data").write_bytes(b"cut short")
    outcome = repobuild_cli("lint", moved)
    assert outcome.status == 3, outcome.out
    assert "model.onnx.data" in outcome.out + outcome.err
    (moved / "model" / "1" / "model.onnx.data").unlink()
    outcome = repobuild_cli("lint", moved)
    assert outcome.status == 3, outcome.out
    assert "model.onnx.data" in outcome.out + outcome.err


def test_other_weights_make_another_version(home, tmp_path, repobuild_cli):
    onnx.save(model(tensor("w", [4], "w.bin")), home / "model.onnx")
    for version in (1, 2):
        np.full(4, version, np.float32).tofile(home / "w.bin")
        outcome = repobuild_cli("convert", recipe(home), "-r", tmp_path / "models")
        assert outcome.status == 0, outcome.err
    assert sorted(p.name for p in (tmp_path / "models" / "model").iterdir() if p.name.isdigit()) == ["1", "2"]


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("missing.bin", "there is no such file"),
        ("/etc/hostname", "no relative path"),
        ("../outside.bin", "leads out of the model's folder"),
        ("a/../../outside.bin", "leads out of the model's folder"),
        ("", "names no file"),
        (".", "names no file"),
        ("folder", "there is no such file"),
    ],
)
def test_paths_that_lead_elsewhere_or_nowhere(home, tmp_path, location, why):
    np.zeros(4, np.float32).tofile(tmp_path / "outside.bin")
    (home / "folder").mkdir()
    onnx.save(model(tensor("w", [4], location)), home / "model.onnx")
    assert why in refused(home, tmp_path)


@pytest.mark.parametrize("through", ["file", "folder"])
def test_links_that_lead_out_of_the_folder(home, tmp_path, through):
    outside = tmp_path / "outside"
    outside.mkdir()
    np.zeros(4, np.float32).tofile(outside / "w.bin")
    if through == "file":
        (home / "w.bin").symlink_to(outside / "w.bin")
        location = "w.bin"
    else:
        (home / "inner").symlink_to(outside)
        location = "inner/w.bin"
    onnx.save(model(tensor("w", [4], location)), home / "model.onnx")
    assert "a link that leads out of the model's folder" in refused(home, tmp_path)


@pytest.mark.parametrize(
    ("offset", "length", "why"),
    [
        (0, 16, "ends at byte 16 of 'w.bin', which has 8 bytes"),
        (4, None, "ends at byte 20 of 'w.bin', which has 8 bytes"),
        (-4, 16, "begins at byte -4"),
        (0, 8, "has 8 bytes, and its shape takes 16"),
        ("x", 16, "no number"),
    ],
)
def test_ranges_that_the_file_does_not_have(home, tmp_path, offset, length, why):
    np.zeros(2, np.float32).tofile(home / "w.bin")
    onnx.save(model(tensor("w", [4], "w.bin", offset, length)), home / "model.onnx")
    assert why in refused(home, tmp_path)
