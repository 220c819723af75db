"""``repobuild init``: the drafted recipe loads and converts, and nothing is overwritten."""

import json
import os
import pickle

import numpy as np
import pytest

from repobuild.artifact import file_digest
from repobuild.recipe.example import example_sections
from repobuild.recipe.load import load_recipe
from repobuild.recipe.schema import RecipeDocument


def test_a_trusted_model_gives_a_whole_recipe_that_converts(risk_project, tmp_path, repobuild_cli):
    (risk_project / "recipe.yaml").unlink()
    outcome = repobuild_cli(
        "init", risk_project / "model.joblib", "--samples", risk_project / "samples.npy",
        "--trust", "pickle", "-o", risk_project / "recipe.yaml", "--name", "risk",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    text = (risk_project / "recipe.yaml").read_text()
    assert f"# sha256: {file_digest(risk_project / 'model.joblib')}  #" in text
    assert "# the model is sklearn.linear_model.LogisticRegression" in text
    assert "  - {name: label}  # one of the classes 0, 1" in text
    recipe = load_recipe(risk_project)
    assert (recipe.name, recipe.source.given, recipe.samples_given) == ("risk", "model.joblib", "samples.npy")
    assert [(i.name, i.dims) for i in recipe.inputs] == [("X", (2,))]
    assert [o.name for o in recipe.outputs] == ["label", "probabilities"]
    done = repobuild_cli("convert", risk_project, "-r", tmp_path / "models", "--trust", "pickle")
    assert done.status == 0, done.err


def test_without_trust_nothing_is_run_and_the_recipe_still_converts_later(
    risk_project, tmp_path, repobuild_cli, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    outcome = repobuild_cli("init", "project/model.joblib", "--samples", "project/samples.npy")
    assert outcome.status == 0, outcome.err
    assert "note: the model was not loaded" in outcome.err
    text = (tmp_path / "recipe.yaml").read_text()
    assert "# loading it imports " in text
    assert "sklearn.linear_model._logistic.LogisticRegression" in text
    assert load_recipe(tmp_path).source.path == risk_project / "model.joblib"
    done = repobuild_cli("convert", tmp_path, "-r", tmp_path / "models", "--trust", "pickle")
    assert done.status == 0, done.err


def test_a_dataframe_model_gets_an_input_a_column_with_its_type(tmp_path, repobuild_cli):
    import joblib
    import pandas as pd
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    frame = pd.DataFrame({"years": np.arange(30.0), "town": ["a", "b", "c"] * 10})
    model = make_pipeline(
        make_column_transformer((StandardScaler(), ["years"]), (OneHotEncoder(), ["town"])),
        LogisticRegression(),
    ).fit(frame, np.arange(30) % 2)
    joblib.dump(model, tmp_path / "model.joblib")
    frame.to_parquet(tmp_path / "rows.parquet")
    outcome = repobuild_cli(
        "init", tmp_path / "model.joblib", "--samples", tmp_path / "rows.parquet", "--trust", "pickle",
        "-o", tmp_path / "recipe.yaml",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    recipe = load_recipe(tmp_path)
    assert [(i.name, i.dtype and i.dtype.value) for i in recipe.inputs] == [
        ("years", None),
        ("town", "BYTES"),
    ]
    done = repobuild_cli("convert", tmp_path, "-r", tmp_path / "models", "--trust", "pickle")
    assert done.status == 0, done.err


def test_nothing_is_overwritten_without_force(risk_project, repobuild_cli):
    recipe = risk_project / "recipe.yaml"
    before = recipe.read_bytes()
    words = ["init", risk_project / "model.joblib", "-o", recipe]
    refused = repobuild_cli(*words)
    assert refused.status == 3
    assert "error[recipe-exists]" in refused.err
    assert recipe.read_bytes() == before
    assert repobuild_cli(*words, "--force").status == 0
    assert recipe.read_bytes() != before
    assert sorted(p.name for p in risk_project.iterdir()) == ["model.joblib", "recipe.yaml", "samples.npy"]


@pytest.mark.parametrize("name", ["yes", "null", "1.5", "-x", "a: b", "ä#b", "x\x1b[2J\nkind: evil"])
def test_names_out_of_a_file_system_cannot_break_the_recipe(risk_project, tmp_path, repobuild_cli, name):
    folder = risk_project / name.replace("/", "_")
    folder.mkdir()
    (risk_project / "model.joblib").rename(folder / f"{name}.joblib")
    outcome = repobuild_cli("init", folder / f"{name}.joblib", "-o", risk_project / "new.yaml")
    assert outcome.status == 0, outcome.err
    recipe = load_recipe(risk_project / "new.yaml")
    assert recipe.source.path == folder / f"{name}.joblib"
    assert recipe.source.kind is None or recipe.source.kind == "joblib"


def test_classes_out_of_a_model_cannot_break_the_recipe(project, repobuild_cli):
    from sklearn.linear_model import LogisticRegression

    labels = np.array(["a\nkind: x", "b\x1b[2J"])
    rows = np.array([[0.0], [1.0]] * 4)
    home = project(LogisticRegression().fit(rows, labels[[0, 1] * 4]), rows)
    outcome = repobuild_cli(
        "init", home / "model.joblib", "-o", home / "recipe.yaml", "--force", "--trust", "pickle"
    )
    assert outcome.status == 0, outcome.err
    text = (home / "recipe.yaml").read_text()
    assert "\x1b" not in text
    assert [o.name for o in load_recipe(home).outputs] == ["label", "probabilities"]


def test_a_hostile_file_is_not_run(tmp_path, repobuild_cli):
    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / "model.pkl").write_bytes(pickle.dumps(Hostile()))
    outcome = repobuild_cli("init", tmp_path / "model.pkl", "-o", tmp_path / "recipe.yaml", "--json")
    assert outcome.status == 0, outcome.err
    assert json.loads(outcome.out)["result"]["model"] is None
    assert "mkdir" in (tmp_path / "recipe.yaml").read_text()
    assert not (tmp_path / "ran").exists()


def test_errors(tmp_path, risk_project, repobuild_cli):
    missing = repobuild_cli("init", tmp_path / "none.joblib")
    assert (missing.status, "error[model-missing]" in missing.err) == (3, True)
    recipe = repobuild_cli("init", risk_project / "recipe.yaml", "-o", tmp_path / "x.yaml")
    assert (recipe.status, "error[model-kind-unknown]" in recipe.err) == (3, True)
    folder = repobuild_cli("init", risk_project, "-o", tmp_path / "x.yaml")
    assert (folder.status, "error[model-is-folder]" in folder.err) == (3, True)
    unsafe = repobuild_cli("init", risk_project / "model.joblib", "--name", "a b", "-o", tmp_path / "x.yaml")
    assert (unsafe.status, "--name a b: name: " in unsafe.err) == (3, True)
    nowhere = repobuild_cli("init", risk_project / "model.joblib", "-o", tmp_path / "no" / "x.yaml")
    assert (nowhere.status, "error[os-error]" in nowhere.err) == (7, True)


def test_every_section_of_the_format_is_shown_with_its_keys():
    shown = {lines[0].partition(":")[0]: lines for lines in example_sections(())}
    assert list(shown) == list(RecipeDocument.model_fields)
    budget = RecipeDocument.model_fields["budget"].annotation
    assert [line.strip().partition(":")[0] for line in shown["budget"][1:]] == list(budget.model_fields)
    assert shown["inputs"][1].startswith("  - name: null")


def test_the_example_sections_are_yaml():
    from ruamel.yaml import YAML

    text = "\n".join(line for lines in example_sections(()) for line in lines)
    read = YAML(typ="safe").load(text)
    assert list(read) == list(RecipeDocument.model_fields)
    assert read["tolerance"] == {"atol": 1e-5, "rtol": 1e-4}
    assert read["targets"][0]["kind"] == "onnxruntime"
