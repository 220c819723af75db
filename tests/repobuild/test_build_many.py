"""``repobuild build``: every recipe below a folder, one failure not stopping the others."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from repobuild.errors import InputInvalid
from repobuild.many import find_recipes, load_recipes


def recipe(file, name, **more):
    """A recipe file whose model need not exist."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"name": name, "source": {"path": "m.joblib"}, "samples": "s.npy", **more}))
    return file


@pytest.fixture
def recipes(risk_project, tmp_path):
    """Two recipes that build, ``a`` and ``c``, around one without its model, ``b``."""
    root = tmp_path / "recipes"
    for letter in "ac":
        shutil.copytree(risk_project, root / letter)
        text = (root / letter / "recipe.yaml").read_text()
        (root / letter / "recipe.yaml").write_text(text.replace('"risk_model"', f'"{letter}"'))
    recipe(root / "b" / "b.recipe.yaml", "b")
    return root


def test_recipes_are_found_sorted_and_hidden_folders_left_out(tmp_path):
    wanted = [
        recipe(tmp_path / "a" / "recipe.yaml", "a"),
        recipe(tmp_path / "a" / "z" / "x.recipe.yaml", "x"),
        recipe(tmp_path / "recipe.yaml", "r"),
    ]
    recipe(tmp_path / ".git" / "recipe.yaml", "hidden")
    recipe(tmp_path / "a" / "other.yaml", "other")
    recipe(tmp_path / ".x.recipe.yaml", "hidden")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert find_recipes(tmp_path) == tuple(sorted(wanted))
    assert find_recipes(wanted[1]) == (wanted[1],)


def test_one_failure_does_not_stop_the_others(recipes, tmp_path, repobuild_cli):
    repository = tmp_path / "models"
    outcome = repobuild_cli("build", recipes, "-r", repository, "--trust", "pickle")
    assert outcome.status == 3
    assert "error[model-missing]" in outcome.err
    rows = [line.split() for line in outcome.out.splitlines()]
    assert [r[1:4] for r in rows[:-1]] == [
        ["a", "new", "version"],
        ["b", "failed", "error[model-missing]"],
        ["c", "new", "version"],
    ]
    assert " ".join(rows[-1]) == "FAILED 3 recipes: 2 new, 0 updated, 0 unchanged, 1 failed, 0 skipped"
    assert sorted(p.name for p in repository.iterdir()) == ["a", "c"]


def test_fail_fast_skips_what_follows_a_failure_and_equal_ones_are_unchanged(
    recipes, tmp_path, repobuild_cli
):
    words = ["build", recipes, "-r", tmp_path / "models", "--trust", "pickle", "--fail-fast", "--json"]
    document = json.loads(repobuild_cli(*words).out)
    assert [m["result"] for m in document["result"]["models"]] == ["new", "failed", "skipped"]
    assert document["error"] == document["result"]["models"][1]["error"]
    shutil.rmtree(recipes / "b")
    outcome = repobuild_cli(*words)
    assert outcome.status == 0, outcome.err
    assert [m["result"] for m in json.loads(outcome.out)["result"]["models"]] == ["unchanged", "new"]


@pytest.mark.parametrize("other", ["churn", "CHURN"])
def test_two_recipes_of_one_name_are_refused_before_anything_is_built(tmp_path, repobuild_cli, tree, other):
    one = recipe(tmp_path / "in" / "one" / "recipe.yaml", "churn")
    two = tmp_path / "in" / "two.recipe.yaml"
    two.write_text(f"source: {{path: m.joblib}}\nsamples: s.npy\nname: {other}\n")
    before = tree(tmp_path)
    outcome = repobuild_cli("build", tmp_path / "in", "-r", tmp_path / "models")
    assert outcome.status == 3
    assert "error[model-name-clash]" in outcome.err
    assert f"  - {one}:1: name: 'churn'" in outcome.err
    assert f"  - {two}:3: name: '{other}'" in outcome.err
    assert tree(tmp_path) == before


def test_an_unusable_recipe_fails_alone(tmp_path):
    bad = recipe(tmp_path / "bad.recipe.yaml", "bad", bogus=1)
    good = recipe(tmp_path / "recipe.yaml", "good")
    found = load_recipes([bad, good])
    assert [(f.file, f.recipe and f.recipe.name, f.problem and f.problem.code) for f in found] == [
        (bad, None, "recipe-invalid"),
        (good, "good", None),
    ]


@pytest.mark.parametrize("make", [lambda p: p / "nothing", lambda p: p])
def test_a_folder_without_recipes_is_refused(tmp_path, make):
    with pytest.raises(InputInvalid) as caught:
        find_recipes(make(tmp_path))
    assert caught.value.code == "recipes-missing"


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path, repobuild_cli, monkeypatch):
    recipe(tmp_path / "closed" / "recipe.yaml", "m")
    real = os.scandir

    def closed(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", closed)
    outcome = repobuild_cli("build", tmp_path, "-r", tmp_path / "models")
    assert outcome.status == 7
    assert "error[permission-denied]" in outcome.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_keeps_what_was_finished_and_nothing_else(recipes, tmp_path, number):
    shutil.rmtree(recipes / "b")
    process = subprocess.Popen(
        [sys.executable, "-m", "repobuild", "build", recipes, "-r", tmp_path / "models", "--trust", "pickle"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        loads = 0
        for line in process.stderr:
            loads += line.split()[:1] == ["load"]
            if loads == 2:
                process.send_signal(number)
                break
        rest = process.stderr.read()
        process.wait(60)
    assert process.returncode == 130
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert [p.name for p in (tmp_path / "models").iterdir()] == ["a"]
    assert sorted(p.name for p in (tmp_path / "models.repobuild").iterdir()) == [".lock", "a"]
