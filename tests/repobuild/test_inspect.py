"""``repobuild inspect``: what files and repositories hold, told without running anything of them."""

import json
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest

from repobuild.artifact import file_digest


@pytest.fixture
def inspected(repobuild_cli):
    """The result of ``inspect --json`` on a path."""

    def run(path):
        outcome = repobuild_cli("inspect", path, "--json")
        assert outcome.status == 0, outcome.err
        return json.loads(outcome.out)["result"]

    return run


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory):
    """A graph of one matrix product whose weights lie in another file."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.eye(2, dtype=np.float32), "W")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["X", "W"], ["Y"])],
        "g",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [None, 2])],
        [weights],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="tests"
    )
    helper.set_model_props(model, {"author": "me"})
    file = tmp_path_factory.mktemp("onnx") / "model.onnx"
    onnx.save(model, file, save_as_external_data=True, location="model.data", size_threshold=0)
    return file


@pytest.mark.parametrize("compress", [0, 3, ("gzip", 3)], ids=str)
def test_a_joblib_file(project, inspected, compress):
    from sklearn.linear_model import LogisticRegression

    home = project(LogisticRegression().fit([[0], [1]], [0, 1]), np.zeros((2, 1)), compress=compress)
    found = inspected(home / "model.joblib")
    assert found["kind"] == "joblib"
    assert found["facts"]["bytes"] == (home / "model.joblib").stat().st_size
    assert found["facts"]["sha256"] == file_digest(home / "model.joblib")
    assert found["facts"]["compression"] == {0: "none", 3: "zlib"}.get(compress, "gzip")
    assert "sklearn.linear_model._logistic.LogisticRegression" in found["facts"]["imports"]
    assert "scikit-learn" in found["facts"]["made_with"]


def test_a_hostile_pickle_is_read_and_not_run(tmp_path, inspected):
    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / "model.pkl").write_bytes(pickle.dumps(Hostile()))
    found = inspected(tmp_path / "model.pkl")
    assert (found["kind"], found["facts"]["calls"]) == ("pickle", [f"{os.mkdir.__module__}.mkdir"])
    assert not (tmp_path / "ran").exists()


def test_a_pickle_cut_off(tmp_path, inspected):
    (tmp_path / "m.pkl").write_bytes(pickle.dumps({"a": np.arange(9)})[:-20])
    assert any("could not follow" in r for r in inspected(tmp_path / "m.pkl")["remarks"])


def test_an_onnx_file(onnx_file, inspected):
    found = inspected(onnx_file)
    facts = found["facts"]
    assert found["kind"] == "onnx"
    assert (facts["ir_version"], facts["opsets"], facts["producer"]) == (9, {"ai.onnx": 17}, "tests")
    assert facts["inputs"] == [{"name": "X", "type": "FLOAT", "shape": ["batch", 2]}]
    assert facts["outputs"] == [{"name": "Y", "type": "FLOAT", "shape": [-1, 2]}]
    assert facts["operators"] == {"ai.onnx.MatMul": 1}
    assert facts["external_data"] == {"model.data": 16}
    assert facts["metadata"] == {"author": "me"}
    assert found["remarks"] == []


def test_external_data_that_is_missing_or_leads_outside_is_told_and_not_read(onnx_file, tmp_path, inspected):
    import onnx

    model = onnx.load(onnx_file, load_external_data=False)
    for location, said in (("gone.data", "is not there"), ("../x", "leads out of the model's folder")):
        for entry in model.graph.initializer[0].external_data:
            if entry.key == "location":
                entry.value = location
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        found = inspected(tmp_path / "m.onnx")
        assert found["remarks"] == [f"external data: '{location}' {said}"]


def test_a_damaged_onnx_file_is_an_error(onnx_file, tmp_path, repobuild_cli):
    (tmp_path / "m.onnx").write_bytes(onnx_file.read_bytes()[:40])
    outcome = repobuild_cli("inspect", tmp_path / "m.onnx")
    assert outcome.status == 3
    assert "error[model-damaged]" in outcome.err


def test_other_kinds(tmp_path, inspected):
    from sklearn.linear_model import LogisticRegression
    from skops.io import dump

    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    (tmp_path / "m.plan").write_bytes(b"ftrt" + bytes(100))
    (tmp_path / "m.bin").write_bytes(b"\x01\x02junk")
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("m/data.pkl", pickle.dumps(print))
        archive.writestr("m/version", "3")
    dump(LogisticRegression().fit([[0], [1]], [0, 1]), tmp_path / "m.skops")
    found = {
        suffix: inspected(tmp_path / f"m.{suffix}")
        for suffix in ("safetensors", "plan", "bin", "pt", "skops")
    }
    assert {s: f["kind"] for s, f in found.items()} == {
        "safetensors": "safetensors",
        "plan": "tensorrt-engine",
        "bin": "unknown",
        "pt": "torch",
        "skops": "skops",
    }
    assert found["safetensors"]["facts"]["tensors"] == {"w": {"dtype": "F32", "shape": [2]}}
    assert "only TensorRT itself can read" in found["plan"]["remarks"][0]
    assert found["pt"]["facts"]["pickles"]["m/data.pkl"]["imports"] == ["builtins.print"]
    assert "sklearn.linear_model._logistic.LogisticRegression" in found["skops"]["facts"]["types"]


def test_a_damaged_archive_still_has_kind_size_and_digest(tmp_path, inspected):
    with zipfile.ZipFile(tmp_path / "whole.npz", "w") as archive:
        archive.writestr("a.npy", b"x" * 100)
    (tmp_path / "m.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:-30])
    found = inspected(tmp_path / "m.npz")
    assert found["facts"]["sha256"] == file_digest(tmp_path / "m.npz")
    assert found["remarks"]


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("gone", None, "model-missing"),
        ("empty", b"", "model-empty"),
        ("page.html", b"<html>", "model-is-web-page"),
    ],
)
def test_what_is_no_model_file(tmp_path, repobuild_cli, name, content, code):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    outcome = repobuild_cli("inspect", tmp_path / name)
    assert outcome.status == 3
    assert f"error[{code}]" in outcome.err


def test_a_repository_a_model_and_a_folder_that_is_neither(risk_project, tmp_path, repobuild_cli, inspected):
    repository = tmp_path / "models"
    assert repobuild_cli("convert", risk_project, "-r", repository, "--trust", "pickle").status == 0
    (repository / "bare").mkdir()
    (repository / "bare" / "config.pbtxt").write_text("max_batch_size: x\n")
    found = inspected(repository)
    assert found["kind"] == "repository"
    model = found["facts"]["models"]["risk_model"]
    assert list(model["versions"]) == ["1"]
    version = model["versions"]["1"]
    assert version["files"] == {"model.onnx": (repository / "risk_model" / "1" / "model.onnx").stat().st_size}
    assert version["records"]["present"] == ["manifest.json", "report.json", "golden.npz"]
    assert version["records"]["source"] == "sklearn.linear_model.LogisticRegression"
    assert model["config"]["inputs"] == [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [2]}]
    assert (model["config"]["made_by_repobuild"], model["config"]["max_batch_size"]) == (True, 32)
    assert len(model["warmup_files"]) == 1
    assert [r for r in found["remarks"] if r.startswith("bare: config.pbtxt does not parse")]
    assert inspected(repository / "risk_model")["facts"] == model
    empty = repobuild_cli("inspect", tmp_path / "project")
    assert empty.status == 3
    assert "error[repository-empty]" in empty.err


def test_text_out_of_files_cannot_move_the_cursor(tmp_path, repobuild_cli):
    (tmp_path / "m.pkl").write_bytes(b"\x80\x04\x8c\x02os\x8c\x06\x1b[2J\x1b[\x93.")
    outcome = repobuild_cli("inspect", tmp_path / "m.pkl")
    assert outcome.status == 0
    assert "\x1b" not in outcome.out + outcome.err
    assert "\\x1b[2J" in outcome.out
