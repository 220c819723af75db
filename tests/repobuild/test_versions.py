"""Further versions of a model: numbers, the user's own configuration, the schema, label files."""

import json
import urllib.request

import joblib
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from sklearn.linear_model import LinearRegression, LogisticRegression

from repobuild.emit.labels import make_labels
from repobuild.emit.versions import LARGEST_VERSION
from repobuild.errors import InputInvalid
from repobuild.triton import parse_config

RNG = np.random.default_rng(0)


@pytest.fixture
def repository(tmp_path):
    return tmp_path / "repository"


@pytest.fixture
def build(project, repobuild_cli, repository):
    """Converts a regressor of some width as model 'price'."""

    def run(*words, width=2, slope=1.0, **recipe):
        rows = RNG.normal(size=(30, width))
        model = LinearRegression().fit(rows, rows[:, 0] * slope)
        home = project(model, rows, folder=f"p{width}-{slope}", name="price", **recipe)
        return repobuild_cli("convert", home, "-r", repository, "--trust", "pickle", *words)

    return run


def config_of(repository, model="price"):
    path = repository / model / "config.pbtxt"
    return parse_config(path.read_text(), path)


def hand_written(repository, text, *, width=4, version="1"):
    """A repository that nobody of us wrote: one graph of some width, and the text of its configuration."""
    graph = helper.make_graph(
        [helper.make_node("ReduceSum", ["X"], ["prediction"])],
        "g",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", width])],
        [helper.make_tensor_value_info("prediction", TensorProto.FLOAT, ["n", 1])],
    )
    folder = repository / "price" / version
    folder.mkdir(parents=True)
    onnx.save(helper.make_model(graph), folder / "model.onnx")
    if text is not None:
        (repository / "price" / "config.pbtxt").write_text(text)


TENSORS = """
input [ {{ name: "X" data_type: TYPE_FP32 dims: [ {width} ] }} ]
output [ {{ name: "prediction" data_type: TYPE_FP32 dims: [ 1 ] }} ]
"""


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        'backend: "onnxruntime"\nmax_batch_size: 8\n',
        'backend: "onnxruntime"\nmax_batch_size: 8\n' + TENSORS.format(width=4),
    ],
)
def test_other_inputs_than_those_of_a_hand_written_version_are_refused(build, repository, tree, text):
    hand_written(repository, text, width=4)
    before = tree(repository)
    outcome = build(width=3)
    assert (outcome.status, "error[schema-changed]" in outcome.err) == (3, True), outcome.err
    assert "'X'" in outcome.err
    assert "4" in outcome.err
    assert "3" in outcome.err
    assert tree(repository) == before


def test_a_hand_written_configuration_that_fits_is_kept_byte_for_byte(build, repository):
    text = "# by hand\n" + 'backend: "onnxruntime" max_batch_size: 8 # eight\n' + TENSORS.format(width=2)
    hand_written(repository, text, width=2)
    outcome = build()
    assert outcome.status == 0, outcome.err
    assert (repository / "price/config.pbtxt").read_text() == text
    assert sorted(p.name for p in (repository / "price").iterdir() if p.name.isdigit()) == ["1", "2"]


def test_an_edit_that_leaves_the_warm_up_too_large_is_found_before_the_server_is_asked(build, repository):
    assert build().status == 0
    file = repository / "price" / "config.pbtxt"
    [largest] = {w.batch_size for w in config_of(repository).model_warmup} - {1}
    file.write_text(file.read_text().replace(f"max_batch_size: {largest}", "max_batch_size: 7"))
    refused = build()
    assert (refused.status, "error[config-edited]" in refused.err) == (3, True), refused.err
    assert f"batch_size {largest}, which is more than max_batch_size, 7" in refused.err
    outcome = build("--update-config")
    assert outcome.status == 0, outcome.err
    config = config_of(repository)
    assert config.max_batch_size == 7
    assert [(w.name, w.batch_size) for w in config.model_warmup] == [
        ("real_row_batch_1", 1),
        ("real_row_batch_7", 7),
    ]


UNFIT = (
    'name: "price" backend: "onnxruntime" max_batch_size: 8 # comment\n'
    + TENSORS.format(width=2)
    + """
default_model_filename: "old.onnx"
instance_group [ { count: 3 kind: KIND_CPU } ]
parameters { key: "intra_op_thread_count" value { string_value: "2" } }
metric_tags { key: "team" value: "risk" }
"""
)


def test_one_that_does_not_fit_is_refused_with_the_difference_and_updated_on_request(build, repository, tree):
    hand_written(repository, UNFIT, width=2)
    before = tree(repository)
    refused = build()
    assert (refused.status, "error[config-edited]" in refused.err) == (3, True), refused.err
    assert "--update-config" in refused.err
    assert tree(repository) == before
    outcome = build("--update-config")
    assert outcome.status == 0, outcome.err
    assert "brought up to date" in outcome.err
    config = config_of(repository)
    assert config.default_model_filename == ""
    assert (config.instance_group[0].count, config.metric_tags["team"]) == (3, "risk")
    assert config.parameters["intra_op_thread_count"].string_value == "2"
    assert config.model_warmup
    text = (repository / "price/config.pbtxt").read_bytes()
    again = build(slope=2.0)
    assert again.status == 0, again.err
    assert (repository / "price/config.pbtxt").read_bytes() == text


def test_another_schema_goes_through_when_it_is_said(build, repository):
    assert build().status == 0
    refused = build(width=3)
    assert (refused.status, "--allow-schema-change" in refused.err) == (3, True), refused.err
    outcome = build("--allow-schema-change", width=3)
    assert outcome.status == 0, outcome.err
    assert "differ from version 1" in outcome.err
    assert list(config_of(repository).input[0].dims) == [3]


def test_numbers_go_on_after_every_version_that_there_was(build, repository):
    assert build().status == 0
    assert build(slope=2.0).status == 0
    for name in ("2/model.onnx", "2"):
        path = repository / "price" / name
        path.unlink() if path.is_file() else path.rmdir()
    (repository / "price" / "007").mkdir()
    (repository / "price" / "old").mkdir()
    assert build(slope=3.0).status == 0
    assert (repository / "price/3/model.onnx").exists()
    assert not (repository / "price/2").exists()


def test_a_version_that_leaves_no_larger_number_is_named(build, repository):
    hand_written(repository, None, width=2, version=str(LARGEST_VERSION))
    outcome = build()
    assert (outcome.status, "error[version-too-large]" in outcome.err) == (3, True), outcome.err


def test_a_policy_that_lists_versions_is_no_silent_trap(build, repository):
    listed = 'backend: "onnxruntime" max_batch_size: 8 version_policy { specific { versions: [1] } }\n'
    hand_written(repository, listed + TENSORS.format(width=2), width=2)
    outcome = build()
    assert (outcome.status, "version_policy" in outcome.err) == (3, True), outcome.err
    outcome = build("--update-config")
    assert outcome.status == 0, outcome.err
    assert config_of(repository).version_policy.WhichOneof("policy_choice") is None


def test_model_names_that_differ_in_case_only_clash(build, project, repobuild_cli, repository):
    assert build().status == 0
    rows = RNG.normal(size=(30, 2))
    home = project(LinearRegression().fit(rows, rows[:, 0]), rows, name="Price")
    outcome = repobuild_cli("convert", home, "-r", repository, "--trust", "pickle")
    assert (outcome.status, "error[model-name-clash]" in outcome.err) == (3, True), outcome.err


def test_an_unreadable_version_is_named(build, repository):
    hand_written(repository, None, width=2)
    (repository / "price/1/model.onnx").write_bytes(b"no graph")
    outcome = build()
    assert (outcome.status, "error[version-unreadable]" in outcome.err) == (3, True), outcome.err


@pytest.fixture
def classes(project, repobuild_cli, repository):
    """Converts a classifier with text classes as model 'm'."""

    def run(names=("low", "mid", "top"), **recipe):
        rows = RNG.normal(size=(90, 2))
        labels = np.array(names)[np.digitize(rows[:, 0], [-0.5, 0.5])]
        home = project(LogisticRegression().fit(rows, labels), rows, name="m", **recipe)
        return repobuild_cli("convert", home, "-r", repository, "--trust", "pickle")

    return run


def test_text_classes_get_a_label_file_that_classification_uses(classes, repository, served):
    assert classes().status == 0
    output = next(o for o in config_of(repository, "m").output if o.name == "probabilities")
    assert (repository / "m" / output.label_filename).read_text() == "low\nmid\ntop\n"
    body = {
        "inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [3.0, 0.0]}],
        "outputs": [{"name": "probabilities", "parameters": {"classification": 1}}],
    }
    with served(repository) as server:
        request = f"{server.address}/v2/models/m/infer"
        with urllib.request.urlopen(request, json.dumps(body).encode(), timeout=30) as reply:
            [answer] = json.load(reply)["outputs"][0]["data"]
    assert answer.endswith(":2:top")


def test_a_label_file_that_nothing_names_any_more_is_removed(classes, repository):
    assert classes().status == 0
    [first] = (repository / "m").glob("*_labels-*.txt")
    assert classes(names=("a", "b", "c")).status == 0
    [second] = (repository / "m").glob("*_labels-*.txt")
    assert second.read_text() == "a\nb\nc\n"
    assert first.name != second.name


@pytest.mark.parametrize("label", ["", " ", "two\nlines", "a\u2028b"])
def test_labels_that_cannot_stand_on_a_line_are_refused(label):
    with pytest.raises(InputInvalid) as caught:
        make_labels({"label": ("fine", label)})
    assert caught.value.code == "labels-unfit"
    assert repr(label) in caught.value.render() or "line break" in caught.value.render()


def test_label_files_are_named_without_what_names_may_hold():
    files = make_labels({'../x "y"': ("a",), "\u540d": ("b",)})
    assert all(name.isascii() and "/" not in name and '"' not in name for name in files.files)
    assert files.by_output.keys() == {'../x "y"', "\u540d"}


def test_a_second_build_without_changes_makes_nothing_new(classes, repository, tree, tmp_path):
    assert classes().status == 0
    before = tree(repository)
    model = joblib.load(tmp_path / "project" / "model.joblib")
    assert model.classes_.tolist() == ["low", "mid", "top"]
    home = tmp_path / "project"
    from repobuild.cli import main

    assert main(["convert", str(home), "-r", str(repository), "--trust", "pickle"]) == 0
    assert tree(repository) == before


def test_a_build_that_changes_the_configuration_alone_says_so(classes, repository, tmp_path, repobuild_cli):
    assert "version 1 (new)" in classes().out
    words = ("convert", tmp_path / "project", "-r", repository, "--trust", "pickle", "--max-batch-size", "16")
    outcome = repobuild_cli(*words, "--json")
    assert outcome.status == 0, outcome.err
    assert "version 1 (equal content was there, its configuration changed)" in outcome.err
    result = json.loads(outcome.out)["result"]
    assert (result["version"], result["changed"], result["new_version"]) == (1, True, False)
