"""The main job through the command line: what comes out, and that a refused build leaves nothing."""

import json
import shutil

import joblib
import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, make_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from repobuild.emit.config import read_config
from repobuild.triton import format_config, parse_config
from repobuild.worker.arrays import load_batch

IRIS, SPECIES = load_iris(return_X_y=True)
IRIS = IRIS.astype(np.float32)


@pytest.fixture
def convert(repobuild_cli, tmp_path):
    """Convert a project with ``--trust pickle`` into ``tmp_path/repository``."""

    def run(home, *words):
        return repobuild_cli(
            "convert", home, "--repository", tmp_path / "repository", "--trust", "pickle", *words
        )

    return run


def tensors(items):
    """``{name: (type, dims)}`` of configuration inputs or outputs."""
    names = items[0].DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    return {t.name: (names[t.data_type].name, list(t.dims)) for t in items}


def test_the_lesson(convert, risk_project, tmp_path):
    outcome = convert(risk_project)
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines()[-1].startswith("PASSED risk_model version 1 (new): ")
    _, config = read_config(tmp_path / "repository" / "risk_model")
    assert config.max_batch_size == 32
    assert config.dynamic_batching.max_queue_delay_microseconds == 5000
    assert tensors(config.input) == {"INPUT0": ("TYPE_FP32", [2])}
    assert tensors(config.output) == {"OUTPUT0": ("TYPE_FP32", [1])}
    assert len(config.model_warmup) == 2
    golden = load_batch(tmp_path / "repository.repobuild" / "risk_model" / "1" / "golden.npz")
    assert golden["input/INPUT0"].shape == (64, 2)
    assert golden["output/OUTPUT0"].shape == (64, 1)


def test_two_builds_from_the_same_inputs_are_byte_identical(repobuild_cli, risk_project, tmp_path, tree):
    copy = tmp_path / "elsewhere"
    shutil.copytree(risk_project, copy)
    for home, place in ((risk_project, "a"), (copy, "b")):
        outcome = repobuild_cli("convert", home, "-r", tmp_path / place / "models", "--trust", "pickle")
        assert outcome.status == 0, outcome.err
    first, second = tree(tmp_path / "a"), tree(tmp_path / "b")
    assert first == second
    assert {"models/risk_model/1/model.onnx", "models.repobuild/risk_model/1/report.json"} <= first.keys()
    assert not any(str(tmp_path).encode() in data for data in first.values())


def test_building_again_changes_nothing(convert, risk_project, tmp_path, tree):
    assert convert(risk_project).status == 0
    before = tree(tmp_path)
    outcome = convert(risk_project)
    assert outcome.status == 0
    assert "version 1 (unchanged" in outcome.out
    assert tree(tmp_path) == before


def test_a_model_trained_again_becomes_the_next_version(convert, project, tmp_path, tree):
    for number, alpha in ((1, 0.1), (2, 10.0)):
        home = project(Ridge(alpha).fit(IRIS, SPECIES), IRIS[::5])
        outcome = convert(home)
        assert outcome.status == 0, outcome.err
        assert f"version {number} (new)" in outcome.out
    repository = tmp_path / "repository"
    assert sorted(p.name for p in (repository / "model").iterdir()) == ["1", "2", "config.pbtxt", "warmup"]
    assert len(list((repository / "model" / "warmup").iterdir())) == 1
    state = tmp_path / "repository.repobuild" / "model"
    assert sorted(p.name for p in state.iterdir()) == ["1", "2"]


@pytest.mark.parametrize(
    ("model", "outputs"),
    [
        (
            LogisticRegression(max_iter=500).fit(IRIS, SPECIES),
            {"label": ("TYPE_INT64", [1]), "probabilities": ("TYPE_FP32", [3])},
        ),
        (
            DecisionTreeClassifier(max_depth=3).fit(IRIS, np.array([-(2**31) - 2, 7, 300])[SPECIES]),
            {"label": ("TYPE_INT64", [1]), "probabilities": ("TYPE_FP32", [3])},
        ),
        (
            LogisticRegression(max_iter=500).fit(IRIS, np.array(["a", "bé", "c"])[SPECIES]),
            {"label": ("TYPE_STRING", [1]), "probabilities": ("TYPE_FP32", [3])},
        ),
        (
            RidgeClassifier().fit(IRIS, SPECIES > 0),
            {"label": ("TYPE_INT64", [1]), "decision_function": ("TYPE_FP32", [1])},
        ),
        (
            KMeans(3, n_init=2, random_state=0).fit(IRIS),
            {"label": ("TYPE_INT64", [1]), "distances": ("TYPE_FP32", [3])},
        ),
        (LinearRegression().fit(IRIS, IRIS[:, :2]), {"prediction": ("TYPE_FP32", [2])}),
        (make_pipeline(StandardScaler(), PCA(2)).fit(IRIS), {"transformed": ("TYPE_FP32", [2])}),
    ],
    ids=[
        "classifier",
        "wide labels",
        "text labels",
        "no probabilities",
        "clusterer",
        "two targets",
        "transformer",
    ],
)
def test_what_each_kind_of_estimator_serves(convert, project, tmp_path, model, outputs):
    outcome = convert(project(model, IRIS[::3]))
    assert outcome.status == 0, outcome.err
    _, config = read_config(tmp_path / "repository" / "model")
    assert tensors(config.input) == {"X": ("TYPE_FP32", [4])}
    assert tensors(config.output) == outputs


def test_a_double_precision_input_is_served_as_such(convert, project, tmp_path):
    home = project(Ridge().fit(IRIS, SPECIES), IRIS.astype(float), inputs=[{"name": "x", "dtype": "FP64"}])
    outcome = convert(home)
    assert outcome.status == 0, outcome.err
    _, config = read_config(tmp_path / "repository" / "model")
    assert tensors(config.input) == {"x": ("TYPE_FP64", [4])}
    assert tensors(config.output) == {"prediction": ("TYPE_FP64", [1])}


def test_a_model_without_a_batch_dimension_is_served_and_verified(convert, project, tmp_path):
    outcome = convert(project(Ridge().fit(IRIS, SPECIES), IRIS[:20], serving={"max_batch_size": 0}))
    assert outcome.status == 0, outcome.err
    _, config = read_config(tmp_path / "repository" / "model")
    assert tensors(config.input) == {"X": ("TYPE_FP32", [-1, 4])}


@pytest.mark.parametrize("compress", [0, 3, ("gzip", 3), ("bz2", 3), ("lzma", 6), ("xz", 3)], ids=str)
def test_every_compression_of_joblib(convert, project, compress):
    assert convert(project(Ridge().fit(IRIS, SPECIES), IRIS[:6], compress=compress)).status == 0


class Refusal:
    """Runs a build that must be refused and checks that nothing at all was left or changed."""

    def __init__(self, repobuild_cli, tmp_path, tree):
        self.cli, self.tmp_path, self.tree = repobuild_cli, tmp_path, tree

    def __call__(self, home, *words, trust=True):
        before = self.tree(self.tmp_path)
        folders = sorted(p for p in self.tmp_path.rglob("*") if p.is_dir())
        trusted = ["--trust", "pickle"] if trust else []
        outcome = self.cli("convert", home, "-r", self.tmp_path / "new" / "repository", *trusted, *words)
        assert self.tree(self.tmp_path) == before
        assert sorted(p for p in self.tmp_path.rglob("*") if p.is_dir()) == folders
        assert "Traceback" not in outcome.err
        assert "hint: " in outcome.err
        return outcome.status, outcome.err


@pytest.fixture
def refuse(repobuild_cli, tmp_path, tree):
    return Refusal(repobuild_cli, tmp_path, tree)


@pytest.fixture
def ridge_project(project):
    return project(Ridge().fit(IRIS, SPECIES), IRIS[:20])


def test_without_trust_nothing_runs(refuse, ridge_project):
    status, text = refuse(ridge_project, trust=False)
    assert status == 6
    assert "error[source-untrusted]" in text
    assert "sklearn.linear_model._ridge.Ridge" in text
    assert "--trust pickle" in text


def test_a_file_that_runs_a_command_is_not_opened(refuse, ridge_project, tmp_path):
    import os

    marker = tmp_path / "ran"

    class Trap:
        def __reduce__(self):
            return os.system, (f"touch {marker}",)

    joblib.dump({"model": 1, "note": Trap()}, ridge_project / "model.joblib")
    status, text = refuse(ridge_project, trust=False)
    assert status == 6
    assert "CALL posix.system" in text
    assert not marker.exists()


def edit(home, **keys):
    """Change keys of a project's recipe."""
    file = home / "recipe.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}, indent=1))


def test_a_pin_vouches_for_this_very_file(convert, refuse, ridge_project, repobuild_cli, tmp_path):
    import hashlib

    digest = hashlib.sha256((ridge_project / "model.joblib").read_bytes()).hexdigest()
    edit(ridge_project, source={"path": "model.joblib", "sha256": "0" * 64})
    status, text = refuse(ridge_project)
    assert status == 6
    assert "error[pin-mismatch]" in text
    assert digest in text
    edit(ridge_project, source={"path": "model.joblib", "sha256": digest.upper()})
    assert repobuild_cli("convert", ridge_project, "-r", tmp_path / "repository").status == 0


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "model-empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n", "model-lfs-pointer"),
        (b"\n<!DOCTYPE html><html>Log in</html>", "model-is-web-page"),
        (b"\x89PNG\r\n\x1a\n" + b"x" * 100, "model-not-pickle"),
        (b"PK\x03\x04" + b"x" * 100, "model-not-pickle"),
        (b"hello world", "model-not-pickle"),
        (None, "model-missing"),
    ],
)
def test_files_that_are_no_model_are_named(refuse, ridge_project, data, code):
    file = ridge_project / "model.joblib"
    file.unlink() if data is None else file.write_bytes(data)
    status, text = refuse(ridge_project)
    assert (status, f"error[{code}]" in text) == (3, True), text
    assert "model.joblib" in text


@pytest.mark.parametrize("compress", [0, 3, ("xz", 3)], ids=str)
def test_a_file_cut_in_the_middle_is_truncated(refuse, project, compress):
    home = project(DecisionTreeClassifier().fit(IRIS, SPECIES), IRIS[:20], compress=compress)
    file = home / "model.joblib"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    status, text = refuse(home)
    assert status == 3
    assert "error[model-truncated]: model.joblib is truncated" in text


@pytest.mark.parametrize(
    ("content", "code", "word"),
    [
        ({"model": Ridge()}, "not-an-estimator", "'model'"),
        (Ridge(), "not-fitted", "n_features_in_"),
        (3, "not-an-estimator", "int"),
    ],
)
def test_files_that_hold_something_else_are_named(refuse, ridge_project, content, code, word):
    joblib.dump(content, ridge_project / "model.joblib")
    status, text = refuse(ridge_project)
    assert (status, f"error[{code}]" in text) == (3, True), text
    assert word in text


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (IRIS[:, :3], "3 columns, the model takes rows x 4"),
        (IRIS[0], "shape [4]"),
        (IRIS[:1], "1 row, too few"),
        (np.array([["a"] * 4] * 3), "<U1"),
        (IRIS.astype(complex), "complex128"),
        (np.array([[1, None, 2, 3]] * 3, dtype=object), "pickles"),
    ],
    ids=["narrow", "one axis", "one row", "text", "complex", "objects"],
)
def test_samples_that_do_not_fit_are_named(refuse, ridge_project, samples, words):
    np.save(ridge_project / "samples.npy", samples, allow_pickle=True)
    status, text = refuse(ridge_project)
    assert (status, "error[samples-unfit]" in text) == (3, True), text
    assert words in text
    assert "recipe.yaml:6: samples" in text


@pytest.mark.parametrize("data", [None, b"", b"garbage"])
def test_sample_files_that_cannot_be_read_are_named(refuse, ridge_project, data):
    file = ridge_project / "samples.npy"
    file.unlink() if data is None else file.write_bytes(data)
    status, text = refuse(ridge_project)
    assert (status, "error[samples-unfit]" in text) == (3, True), text


@pytest.mark.parametrize(
    ("keys", "status", "code", "word"),
    [
        ({"outputs": [{"name": "o", "from": "probabilities"}]}, 3, "output-unknown", "prediction"),
        ({"outputs": [{"name": "o", "from": "prediction[:, 4]"}]}, 3, "output-out-of-range", "outputs"),
        ({"outputs": [{"name": "X", "from": "prediction"}]}, 3, "output-named-as-input", "X"),
        ({"tolerance": {"other": {"atol": 1.0}}}, 3, "tolerance-unknown", "other"),
        ({"inputs": [{"name": "a"}, {"name": "b"}]}, 3, "inputs-mismatch", "2 inputs"),
        ({"inputs": [{"name": "a", "dims": [3]}]}, 3, "inputs-mismatch", "[3]"),
        ({"serving": {"max_batch_size": 0, "dynamic_batching": {}}}, 3, "serving-unfit", "dynamic_batching"),
        ({"serving": {"max_batch": 0}}, 3, "recipe-invalid", "serving.max_batch"),
        ({"source": {"path": "model.joblib", "kind": "odd"}}, 3, "recipe-invalid", "odd"),
    ],
    ids=lambda v: str(v)[:40],
)
def test_recipes_that_ask_for_what_is_not_there(refuse, ridge_project, keys, status, code, word):
    edit(ridge_project, **keys)
    got, text = refuse(ridge_project)
    assert (got, f"error[{code}]" in text) == (status, True), text
    assert word in text


def test_an_answer_that_differs_fails_with_row_and_report(repobuild_cli, project, tmp_path):
    """float32 cannot tell 1e9 from 1e9 + 1, and the neighbours in float64 can."""
    rows = 1e9 + np.arange(40, dtype=np.float64).reshape(-1, 1)
    home = project(
        KNeighborsClassifier(1).fit(rows, np.arange(40) % 2), rows, inputs=[{"name": "X", "dtype": "FP32"}]
    )
    report = tmp_path / "report.json"
    outcome = repobuild_cli(
        "convert", home, "-r", tmp_path / "repository", "--trust", "pickle", "--report", report
    )
    assert outcome.status == 4
    assert "error[check-failed]" in outcome.err
    assert "equal: label" in outcome.err
    assert "row " in outcome.err
    document = json.loads(report.read_text())
    assert document["outcome"] == "refused"
    assert document["error"]["code"] == "check-failed"
    assert any(c["outcome"] == "fail" and c["worst"] for c in document["checks"])
    assert not (tmp_path / "repository").exists()
    assert not (tmp_path / "repository.repobuild").exists()


def test_probabilities_of_several_targets_are_refused(refuse, project):
    model = RandomForestClassifier(2, random_state=0).fit(IRIS, np.c_[SPECIES, SPECIES])
    status, text = refuse(project(model, IRIS[:20]))
    assert (status, "error[answer-not-tensor]" in text) == (3, True), text


def test_an_estimator_without_converter_is_named(refuse, project):
    from sklearn.kernel_ridge import KernelRidge

    status, text = refuse(project(KernelRidge().fit(IRIS, SPECIES), IRIS[:20]))
    assert status == 5
    assert "error[no-converter]" in text
    assert "KernelRidge" in text


def test_a_class_from_a_script_is_named(refuse, ridge_project):
    import pickle

    stream = pickle.dumps(Ridge().fit(IRIS, SPECIES)).replace(
        b"sklearn.linear_model._ridge", b"sklearn.linear_model._rigde"
    )
    (ridge_project / "model.joblib").write_bytes(stream)
    status, text = refuse(ridge_project)
    assert status == 7
    assert "error[module-missing]" in text


def test_other_inputs_under_the_same_name_are_refused(convert, project, tmp_path, tree):
    assert convert(project(Ridge().fit(IRIS, SPECIES), IRIS[:20])).status == 0
    before = tree(tmp_path / "repository")
    outcome = convert(project(Ridge().fit(IRIS[:, :2], SPECIES), IRIS[:20, :2], folder="other"))
    assert outcome.status == 3
    assert "error[schema-changed]" in outcome.err
    assert tree(tmp_path / "repository") == before


def test_a_config_edited_by_hand_is_kept_or_refused(convert, project, tmp_path):
    assert convert(project(Ridge(0.1).fit(IRIS, SPECIES), IRIS[:20])).status == 0
    config = tmp_path / "repository" / "model" / "config.pbtxt"
    edited = config.read_text().replace("count: 1", "count: 2") + "# ours\n"
    config.write_text(edited)
    outcome = convert(project(Ridge(10).fit(IRIS, SPECIES), IRIS[:20]))
    assert outcome.status == 0, outcome.err
    assert "version 2 (new)" in outcome.out
    assert "note: config.pbtxt was edited by hand" in outcome.err
    assert config.read_text() == edited
    config.write_text(edited.replace("TYPE_FP32", "TYPE_FP64"))
    outcome = convert(project(Ridge(5).fit(IRIS, SPECIES), IRIS[:20]))
    assert outcome.status == 3
    assert "error[schema-changed]" in outcome.err
    assert config.read_text() == edited.replace("TYPE_FP32", "TYPE_FP64")


def test_quiet_prints_the_result_only(convert, ridge_project):
    outcome = convert(ridge_project, "--quiet")
    assert outcome.err == ""
    assert outcome.out.splitlines()[-1].startswith("PASSED model version 1")


def test_samples_too_large_for_the_type_of_an_input_are_named(refuse, project):
    home = project(
        Ridge().fit(IRIS, SPECIES), np.full((3, 4), 1e300), inputs=[{"name": "X", "dtype": "FP32"}]
    )
    status, text = refuse(home)
    assert (status, "error[samples-unfit]" in text) == (3, True), text
    assert "do not fit FP32" in text


def test_columns_chosen_by_index_are_served_alone(convert, project, tmp_path):
    rows, labels = make_classification(100, 4, random_state=0)
    home = project(
        LogisticRegression().fit(rows, labels),
        rows,
        outputs=[{"name": "p", "from": "probabilities[:, 1]"}, {"name": "which", "from": "label"}],
    )
    outcome = convert(home)
    assert outcome.status == 0, outcome.err
    _, config = read_config(tmp_path / "repository" / "model")
    assert tensors(config.output) == {"p": ("TYPE_FP32", [1]), "which": ("TYPE_INT64", [1])}


def test_float_class_labels_are_compared_exactly(repobuild_cli, project, tmp_path):
    """Ids that pandas made float: 90210.0 and 90211.0 lie within any relative tolerance of each other."""
    rng = np.random.RandomState(0)
    rows = np.c_[1.7e9 + rng.uniform(0, 100, (200, 1)), rng.normal(size=(200, 1))]
    labels = np.where(rows[:, 0] > 1.7e9 + 50, 90211.0, 90210.0)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, labels)
    home = project(
        model,
        rows,
        inputs=[{"name": "X", "dtype": "FP32"}],
        outputs=[{"name": "label"}],
        tolerance={"atol": 5.0, "label": {"rtol": 1.0}},
    )
    outcome = repobuild_cli("convert", home, "-r", tmp_path / "repository", "--trust", "pickle")
    assert outcome.status == 4, outcome.out
    assert "equal: label" in outcome.err


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(max_iter=500).fit(IRIS, SPECIES),
        LogisticRegression(max_iter=500).fit(IRIS, np.array(["a", "b", "c"])[SPECIES]),
        GaussianNB().fit(IRIS, SPECIES),
        SVC().fit(IRIS, SPECIES),
        RandomForestClassifier(3, random_state=0).fit(IRIS, SPECIES),
    ],
    ids=lambda m: type(m).__name__,
)
def test_classifiers_convert_in_double_precision(convert, project, model):
    outcome = convert(project(model, IRIS[::3].astype(float), inputs=[{"name": "X", "dtype": "FP64"}]))
    assert outcome.status == 0, outcome.err


def test_a_selection_that_takes_nothing_is_refused(refuse, project):
    home = project(
        LogisticRegression().fit(IRIS, SPECIES > 0),
        IRIS[:20],
        outputs=[{"name": "p", "from": "probabilities[:, 2:3]"}],
    )
    status, text = refuse(home)
    assert (status, "error[output-out-of-range]" in text) == (3, True), text


def test_a_report_that_cannot_be_written_costs_no_build(refuse, ridge_project, tmp_path):
    status, text = refuse(ridge_project, "--report", tmp_path / "nowhere" / "report.json")
    assert status == 7
    assert "opening the report file" in text


def test_a_recipe_with_mistakes_has_a_report_too(repobuild_cli, ridge_project, tmp_path):
    edit(ridge_project, colour="red")
    report = tmp_path / "report.json"
    outcome = repobuild_cli("convert", ridge_project, "-r", tmp_path / "models", "--report", report)
    assert outcome.status == 3
    assert json.loads(report.read_text())["error"]["code"] == "recipe-invalid"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["project", "report.json"]


def test_an_empty_repository_path_is_a_usage_error(repobuild_cli, ridge_project):
    outcome = repobuild_cli("convert", ridge_project, "--repository", "")
    assert outcome.status == 2
    assert "the path is empty" in outcome.err


@pytest.mark.parametrize("file", ["samples.npy", "samples.npz"])
def test_samples_are_read_by_what_they_are(convert, ridge_project, file):
    (ridge_project / "samples.npy").unlink()
    with (ridge_project / file).open("wb") as stream:
        np.savez(stream, X=IRIS[:20]) if file.endswith("npy") else np.save(stream, IRIS[:20])
    edit(ridge_project, samples=file)
    assert convert(ridge_project).status == 0


def test_a_sample_file_that_claims_too_much_is_refused(refuse, ridge_project):
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**12, 4)}
    with (ridge_project / "samples.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
    status, text = refuse(ridge_project)
    assert (status, "error[samples-unfit]" in text) == (3, True), text


def test_a_kept_config_stays_as_it_is_on_disk(convert, project, tmp_path):
    assert convert(project(Ridge(0.1).fit(IRIS, SPECIES), IRIS[:20])).status == 0
    config = tmp_path / "repository" / "model" / "config.pbtxt"
    elsewhere = tmp_path / "shared.pbtxt"
    elsewhere.write_bytes(config.read_bytes().replace(b"\n", b"\r\n"))
    config.unlink()
    config.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    outcome = convert(project(Ridge(10).fit(IRIS, SPECIES), IRIS[:20]))
    assert outcome.status == 0, outcome.err
    assert config.is_symlink()
    assert elsewhere.read_bytes() == before


def test_a_config_is_ours_without_the_state_folder(convert, project, tmp_path):
    assert convert(project(Ridge(0.1).fit(IRIS, SPECIES), IRIS[:20])).status == 0
    shutil.rmtree(tmp_path / "repository.repobuild")
    outcome = convert(project(Ridge(10).fit(IRIS, SPECIES), IRIS[:20], serving={"max_batch_size": 16}))
    assert outcome.status == 0, outcome.err
    assert "edited by hand" not in outcome.err
    assert read_config(tmp_path / "repository" / "model")[1].max_batch_size == 16


def test_a_hand_written_config_may_serve_some_outputs_only(convert, project, tmp_path):
    model = LogisticRegression(max_iter=500)
    assert convert(project(model.fit(IRIS, SPECIES), IRIS[::5])).status == 0
    folder = tmp_path / "repository" / "model"
    _, message = read_config(folder)
    del message.output[1]
    (folder / "config.pbtxt").write_text(format_config(message))
    outcome = convert(project(model.fit(IRIS[::-1], SPECIES), IRIS[::5]))
    assert outcome.status == 0, outcome.err


def test_a_config_that_is_no_text_is_named(convert, ridge_project, tmp_path):
    assert convert(ridge_project).status == 0
    config = tmp_path / "repository" / "model" / "config.pbtxt"
    config.write_bytes(config.read_bytes() + b"# \xff\n")
    outcome = convert(ridge_project)
    assert (outcome.status, "error[config-unreadable]" in outcome.err) == (3, True), outcome.err


def test_a_queue_limit_of_the_model_does_not_fail_its_verification(convert, ridge_project):
    policy = {"default_queue_policy": {"max_queue_size": 8}, "max_queue_delay_microseconds": 1000}
    edit(ridge_project, serving={"max_batch_size": 4, "dynamic_batching": policy})
    outcome = convert(ridge_project)
    assert outcome.status == 0, outcome.err
    assert "served: 8 rows at once" in outcome.out


@pytest.mark.parametrize(
    ("serving", "code"),
    [
        ({"max_batch_size": 2**31 - 1}, "serving-unfit"),
        ({"version_policy": {"specific": {"versions": [7]}}}, "serving-unfit"),
        ({"dynamic_batching": {}, "sequence_batching": {}}, "recipe-invalid"),
    ],
    ids=str,
)
def test_serving_that_cannot_be_is_refused_before_the_server_starts(refuse, ridge_project, serving, code):
    edit(ridge_project, serving=serving)
    status, text = refuse(ridge_project)
    assert (status, f"error[{code}]" in text) == (3, True), text


@pytest.mark.parametrize(
    ("model", "method", "output", "dims"),
    [
        (LogisticRegression(max_iter=500).fit(IRIS, SPECIES), "predict_proba", "probabilities", [3]),
        (LogisticRegression(max_iter=500).fit(IRIS, SPECIES), "predict", "label", [1]),
        (LogisticRegression(max_iter=500).fit(IRIS, SPECIES), "decision_function", "decision_function", [3]),
        (
            LogisticRegression(max_iter=500).fit(IRIS, SPECIES > 0),
            "decision_function",
            "decision_function",
            [1],
        ),
        (KMeans(3, n_init=1, random_state=0).fit(IRIS), "transform", "distances", [3]),
    ],
)
def test_a_method_that_the_recipe_names_is_all_that_is_served(
    convert, project, tmp_path, model, method, output, dims
):
    home = project(model, IRIS[:40], source={"path": "model.joblib", "method": method})
    outcome = convert(home)
    assert outcome.status == 0, outcome.err
    config = parse_config((tmp_path / "repository/model/config.pbtxt").read_text(), tmp_path)
    assert [(o.name, list(o.dims)) for o in config.output] == [(output, dims)]


def test_a_method_that_the_model_has_not_is_named_with_those_it_has(refuse, project):
    home = project(
        Ridge().fit(IRIS, SPECIES), IRIS, source={"path": "model.joblib", "method": "predict_proba"}
    )
    status, text = refuse(home)
    assert (status, "error[method-unknown]" in text) == (3, True), text
    assert "it has predict" in text
