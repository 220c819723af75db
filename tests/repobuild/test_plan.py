"""``repobuild plan``: what would be done, with nothing of the model run and nothing written."""

import json
import os
import pickle

import pytest

from repobuild.artifact import file_digest


def planned(outcome):
    """The only plan of an envelope."""
    [plan] = json.loads(outcome.out)["result"]["plans"]
    return plan


def test_a_plan_says_what_a_build_would_do(risk_project, tmp_path, repobuild_cli, tree):
    before = tree(tmp_path)
    outcome = repobuild_cli("plan", risk_project, "-r", tmp_path / "models", "--trust", "pickle", "--json")
    assert outcome.status == 0, outcome.err
    plan = planned(outcome)
    assert plan["model"] == "risk_model"
    assert plan["source"]["sha256"] == file_digest(risk_project / "model.joblib")
    assert (plan["source"]["needs"], plan["source"]["given"], plan["source"]["pinned"]) == (
        ["pickle"],
        ["pickle"],
        False,
    )
    assert "sklearn.linear_model._logistic.LogisticRegression" in plan["source"]["facts"]["imports"]
    assert plan["samples"]["rows"] == 200
    assert [c["holds"] for c in plan["samples"]["columns"]] == ["float64[2]"]
    assert plan["targets"] == ["onnxruntime"]
    assert (plan["place"]["versions"], plan["place"]["version"]) == ([], 1)
    assert plan["problems"] == []
    assert tree(tmp_path) == before


def test_an_untrusted_model_has_the_status_that_convert_would_have(risk_project, repobuild_cli):
    outcome = repobuild_cli("plan", risk_project)
    assert outcome.status == 6
    assert "error[source-untrusted]" in outcome.err
    assert "needs --trust pickle; given is nothing" in outcome.out
    assert "would stop with error[source-untrusted]" in outcome.out


def test_a_pin_is_trust_and_a_wrong_pin_is_not(risk_project, repobuild_cli):
    digest = file_digest(risk_project / "model.joblib")
    pinned = repobuild_cli("plan", risk_project, "--set", f"source.sha256={digest}")
    assert pinned.status == 0, pinned.err
    assert "the recipe pins this very file" in pinned.out
    wrong = repobuild_cli("plan", risk_project, "--set", f"source.sha256={'f' * 64}")
    assert wrong.status == 6
    assert "error[pin-mismatch]" in wrong.err


def test_planning_runs_nothing_of_a_hostile_file(risk_project, tmp_path, repobuild_cli):
    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    (risk_project / "model.joblib").write_bytes(pickle.dumps(Hostile()))
    outcome = repobuild_cli("plan", risk_project, "--trust", "pickle")
    assert outcome.status == 0
    assert "mkdir" in outcome.out
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (["--set", "source.path=none.joblib"], 3, "model-missing"),
        (["--samples", "none.npy"], 3, "samples-unfit"),
        (["--target", "12.12"], 3, "release-unknown"),
        (["--set", "bogus=1"], 3, "recipe-invalid"),
        (["--set", "targets=[tensorrt]"], 7, "target-unavailable"),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else None,
)
def test_what_is_decidable_already_is_refused_already(risk_project, repobuild_cli, words, status, code):
    outcome = repobuild_cli("plan", risk_project, "--trust", "pickle", *words)
    assert outcome.status == status
    assert f"error[{code}]" in outcome.err


def test_versions_and_the_fate_of_config_pbtxt_are_told(risk_project, tmp_path, repobuild_cli):
    repository = tmp_path / "models"
    words = [risk_project, "-r", repository, "--trust", "pickle"]
    assert repobuild_cli("convert", *words).status == 0
    ours = planned(repobuild_cli("plan", *words, "--json"))["place"]
    assert (ours["versions"], ours["version"]) == ([1], 2)
    assert ours["config"].startswith("it is repobuild's own")
    config = repository / "risk_model" / "config.pbtxt"
    config.write_text(config.read_text() + "# edited\n")
    edited = planned(repobuild_cli("plan", *words, "--json"))["place"]
    assert "kept byte for byte if it fits" in edited["config"]
    config.write_text("nonsense {")
    broken = repobuild_cli("plan", *words)
    assert broken.status == 3
    assert "error[config-unreadable]" in broken.err


def test_a_folder_of_recipes_is_planned_whole(risk_project, tmp_path, repobuild_cli):
    (tmp_path / "project" / "b.recipe.yaml").write_text("name: b\n")
    (tmp_path / "project" / "recipe.yaml").rename(tmp_path / "project" / "a.recipe.yaml")
    outcome = repobuild_cli("plan", risk_project, "--trust", "pickle", "--json")
    assert outcome.status == 3
    document = json.loads(outcome.out)
    assert [p["model"] for p in document["result"]["plans"]] == ["risk_model"]
    assert document["error"]["code"] == "recipe-invalid"
