"""``repobuild convert`` with a model file alone, and with keys set on the command line."""

import json

import numpy as np
import pytest


def report_of(repository, model, version=1):
    """The report that lies beside the repository."""
    folder = repository.with_name(repository.name + ".repobuild") / model / str(version)
    return json.loads((folder / "report.json").read_text())


def test_a_model_file_with_samples_converts_under_a_safe_name(risk_project, tmp_path, repobuild_cli):
    model = (risk_project / "model.joblib").rename(risk_project / "Team Churn (v2).joblib")
    repository = tmp_path / "models"
    outcome = repobuild_cli(
        "convert", model, "--samples", risk_project / "samples.npy", "-r", repository, "--trust", "pickle",
        "--max-batch-size", "4", "--opset", "15", "--set", "outputs[0].name=risk",
        "--set", "outputs[0].from=probabilities[:, 1:2]",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    assert "note: the model is named 'Team_Churn_v2'" in outcome.err
    assert "PASSED Team_Churn_v2 version 1 (new)" in outcome.out
    config = (repository / "Team_Churn_v2" / "config.pbtxt").read_text()
    assert "max_batch_size: 4" in config
    assert 'name: "risk"' in config
    found = report_of(repository, "Team_Churn_v2")
    assert found["source"]["path"] == "Team Churn (v2).joblib"
    assert [t["name"] for t in found["signature"]["outputs"]] == ["risk"]


def test_an_unsafe_name_given_on_purpose_is_refused(risk_project, tmp_path, repobuild_cli):
    outcome = repobuild_cli(
        "convert", risk_project / "model.joblib", "--samples", risk_project / "samples.npy",
        "-r", tmp_path / "models", "--name", "Team Churn", "--trust", "pickle",
    )  # fmt: skip
    assert outcome.status == 3
    assert "error[recipe-invalid]" in outcome.err
    assert "--name Team Churn: name: must be 1 to 128 letters" in outcome.err
    assert not (tmp_path / "models").exists()


def test_the_same_command_twice_keeps_the_version_and_the_records(
    risk_project, tmp_path, repobuild_cli, tree, monkeypatch
):
    monkeypatch.chdir(risk_project)
    words = ["convert", "model.joblib", "--samples", "samples.npy", "--name", "risk", "--trust", "pickle"]
    one, two = tmp_path / "one", tmp_path / "two"
    assert repobuild_cli(*words, "-r", one).status == 0
    assert "(unchanged" in repobuild_cli(*words, "-r", one).out
    assert repobuild_cli(*words, "-r", two).status == 0
    assert tree(one) == tree(two)
    assert tree(tmp_path / "one.repobuild") == tree(tmp_path / "two.repobuild")


def test_a_mistake_in_a_setting_points_at_the_setting(risk_project, tmp_path, repobuild_cli):
    outcome = repobuild_cli(
        "convert", risk_project, "-r", tmp_path / "models", "--set", "export.opset=99", "--set", "nonsense=1"
    )
    assert outcome.status == 3
    assert "  - --set export.opset=99: export.opset: " in outcome.err
    assert "  - --set nonsense=1: nonsense: unknown key" in outcome.err
    assert "recipe.yaml" not in outcome.err


def test_samples_on_the_command_line_are_relative_to_the_working_directory(
    risk_project, tmp_path, repobuild_cli, monkeypatch
):
    np.save(tmp_path / "other.npy", np.array([[1.0, 2.0], [6.0, 7.0], [3.0, 3.0]]))
    monkeypatch.chdir(tmp_path)
    outcome = repobuild_cli(
        "convert", risk_project, "--samples", "other.npy", "-r", "models", "--trust", "pickle", "-q"
    )
    assert outcome.status == 0, outcome.err
    assert report_of(tmp_path / "models", "risk_model")["samples"]["rows"] == 3


def test_samples_that_do_not_fit_point_at_the_option(risk_project, tmp_path, repobuild_cli):
    np.save(tmp_path / "wide.npy", np.zeros((3, 5)))
    outcome = repobuild_cli(
        "convert", risk_project, "--samples", tmp_path / "wide.npy", "-r", tmp_path / "m", "--trust", "pickle"
    )
    assert outcome.status == 3
    assert f"--samples {tmp_path / 'wide.npy'}: samples: " in outcome.err


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("empty.joblib", b"", "model-empty"),
        ("page.pkl", b"<!doctype html><title>x</title>", "model-is-web-page"),
        ("pointer.joblib", b"version https://git-lfs.github.com/spec/v1\n", "model-lfs-pointer"),
        ("notes.txt", b"hello there", "model-kind-unknown"),
    ],
)
def test_what_is_no_model_is_refused_by_its_content(tmp_path, repobuild_cli, name, content, code):
    (tmp_path / name).write_bytes(content)
    outcome = repobuild_cli("convert", tmp_path / name, "-r", tmp_path / "models")
    assert outcome.status == 3
    assert f"error[{code}]" in outcome.err
    assert not (tmp_path / "models").exists()


def test_a_folder_without_a_recipe_says_so(tmp_path, repobuild_cli):
    outcome = repobuild_cli("convert", tmp_path, "-r", tmp_path / "models")
    assert outcome.status == 3
    assert f"error[recipe-missing]: there is no such recipe\n  - {tmp_path / 'recipe.yaml'}" in outcome.err


def test_progress_can_be_chosen(risk_project, tmp_path, repobuild_cli):
    words = ["convert", risk_project, "-r", tmp_path / "models", "--trust", "pickle"]
    plain = repobuild_cli(*words, "--progress", "plain")
    assert "\n  export   " in plain.err
    quiet = repobuild_cli(*words, "--progress", "quiet")
    assert "  export   " not in quiet.err
    live = repobuild_cli(*words, "--progress", "tty")
    assert "\x1b[" in live.err
    assert "  export   INPUT0 FP32 [2] -> OUTPUT0 FP32 [1]" in live.err
