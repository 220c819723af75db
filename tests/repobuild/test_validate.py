"""``repobuild validate``: a repository checked again, every fault named, nothing changed."""

import json
import shutil

import numpy as np
import pytest


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A repository with two versions of one model."""
    import joblib
    from sklearn.linear_model import LogisticRegression

    from repobuild.build import Order
    from repobuild.pipeline import convert
    from repobuild.recipe.load import load_recipe
    from repobuild.sources.interface import Trust

    home = tmp_path_factory.mktemp("validate")
    rows = np.random.RandomState(0).uniform(0, 10, (60, 2))
    np.save(home / "samples.npy", rows)
    (home / "recipe.yaml").write_text(
        "name: risk\nsource: {path: model.joblib}\nsamples: samples.npy\nserving: {max_batch_size: 8}\n"
    )
    for limit in (10, 12):
        joblib.dump(LogisticRegression().fit(rows, rows.sum(axis=1) > limit), home / "model.joblib")
        convert(Order(load_recipe(home), home / "models", Trust(frozenset({"pickle"}))))
    return home


@pytest.fixture
def repository(pristine, tmp_path):
    """A copy of it, with its records."""
    for name in ("models", "models.repobuild"):
        shutil.copytree(pristine / name, tmp_path / name)
    return tmp_path / "models"


def findings(outcome):
    """The findings of an envelope that did not pass."""
    found = json.loads(outcome.out)["result"]["findings"]
    return [f for f in found if f["outcome"] == "fail"]


def test_a_whole_repository_passes_in_all_its_versions_and_is_not_changed(
    repository, tmp_path, repobuild_cli, tree
):
    before = tree(tmp_path)
    outcome = repobuild_cli("validate", repository, "--json")
    assert outcome.status == 0, outcome.err
    found = json.loads(outcome.out)["result"]["findings"]
    for version in (1, 2):
        answers = [f for f in found if f["version"] == version and f["about"] == "answers"]
        assert len([f for f in answers if f["outcome"] == "pass"]) >= 6
        assert any(f["detail"].startswith("binary, rows alone: ") for f in answers)
    assert {f["outcome"] for f in found} <= {"pass", "skip"}
    assert tree(tmp_path) == before


def test_a_changed_file_is_named_with_both_digests_and_not_served(repository, repobuild_cli):
    shutil.copyfile(repository / "risk" / "1" / "model.onnx", repository / "risk" / "2" / "model.onnx")
    outcome = repobuild_cli("validate", repository, "--json")
    assert outcome.status == 3
    assert json.loads(outcome.out)["error"]["code"] == "repository-damaged"
    [wrong] = findings(outcome)
    assert (wrong["version"], wrong["about"]) == (2, "files")
    assert wrong["detail"].startswith("model.onnx has sha256 ")
    found = json.loads(outcome.out)["result"]["findings"]
    assert [f["outcome"] for f in found if f["version"] == 2 and f["about"] == "answers"] == ["skip"]


def test_files_that_came_and_went_are_named(repository, repobuild_cli):
    (repository / "risk" / "1" / "model.onnx").rename(repository / "risk" / "1" / "other.onnx")
    details = {f["detail"] for f in findings(repobuild_cli("validate", repository, "--json"))}
    assert {"model.onnx is missing", "other.onnx was not there when it was built"} <= details


def test_an_answer_that_differs_has_status_8_and_names_the_row(repository, repobuild_cli):
    from repobuild.worker.arrays import load_batch, save_batch

    file = repository.with_name("models.repobuild") / "risk" / "1" / "golden.npz"
    golden = load_batch(file)
    golden["output/probabilities"][5] += 0.25
    save_batch(file, golden)
    outcome = repobuild_cli("validate", repository)
    assert outcome.status == 8
    assert "error[answers-changed]" in outcome.err
    assert "risk/1: answers: JSON, rows alone: " in outcome.err
    assert "row 5" in outcome.err
    assert outcome.out.splitlines()[-1].startswith("FAILED ")


@pytest.mark.parametrize("name", ["manifest.json", "report.json", "golden.npz"])
@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_records_that_are_missing_or_damaged(repository, repobuild_cli, name, damage):
    file = repository.with_name("models.repobuild") / "risk" / "2" / name
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:50])
    outcome = repobuild_cli("validate", repository, "--json")
    assert outcome.status == 3
    [wrong] = findings(outcome)
    assert (wrong["version"], wrong["about"]) == (2, "records")
    assert wrong["detail"].startswith(f"{name} {'is missing' if damage == 'gone' else 'cannot be read'}")


def test_records_of_another_version_are_not_taken(repository, repobuild_cli):
    state = repository.with_name("models.repobuild") / "risk"
    shutil.rmtree(state / "2")
    shutil.copytree(state / "1", state / "2")
    [wrong] = findings(repobuild_cli("validate", repository, "--json"))
    assert "is of risk version 1, not of this one" in wrong["detail"]


def test_a_broken_configuration_is_named_with_its_line(repository, repobuild_cli):
    (repository / "risk" / "config.pbtxt").write_text('name: "risk"\nbogus: 1\n')
    outcome = repobuild_cli("validate", repository)
    assert outcome.status == 3
    assert f"{repository}/risk/config.pbtxt:2: risk: config: " in outcome.err


def test_a_configuration_of_another_interface_matters_for_versions_that_are_served(repository, repobuild_cli):
    file = repository / "risk" / "config.pbtxt"
    file.write_text(file.read_text().replace('"probabilities"', '"P"'))
    outcome = repobuild_cli("validate", repository, "--json")
    assert outcome.status == 3
    found = json.loads(outcome.out)["result"]["findings"]
    said = "the graph has no output 'P'; it has label, probabilities"
    assert [f["detail"] for f in found if f["version"] == 2 and f["outcome"] == "fail"] == [said]
    [skip] = [f for f in found if f["version"] == 1 and f["about"] == "answers"]
    assert (skip["outcome"], skip["detail"].endswith(said)) == ("skip", True)


def test_a_warm_up_file_that_is_gone_is_named(repository, repobuild_cli):
    [file] = (repository / "risk" / "warmup").iterdir()
    file.unlink()
    wrong = findings(repobuild_cli("validate", repository, "--json"))
    assert any(f["about"] == "config" and file.name in f["detail"] for f in wrong)
    assert any(f["about"] == "lint" for f in wrong)


def test_a_warm_up_file_that_was_changed_is_named(repository, repobuild_cli):
    [file] = (repository / "risk" / "warmup").iterdir()
    file.write_bytes(bytes(len(file.read_bytes())))
    [wrong] = findings(repobuild_cli("validate", repository, "--json"))
    assert wrong["detail"] == f"warmup/{file.name} was changed since it was written"


def test_label_files_are_part_of_what_is_checked(tmp_path, repobuild_cli):
    import joblib
    from sklearn.linear_model import LogisticRegression

    rows = np.random.RandomState(0).uniform(0, 10, (60, 2))
    np.save(tmp_path / "samples.npy", rows)
    joblib.dump(LogisticRegression().fit(rows, np.where(rows[:, 0] > 5, "up", "down")), tmp_path / "m.joblib")
    (tmp_path / "recipe.yaml").write_text(
        "name: m\nsource: {path: m.joblib}\nsamples: samples.npy\n"
        "outputs: [{name: probabilities, labels: from-classes}]\n"
    )
    done = repobuild_cli("convert", tmp_path, "-r", tmp_path / "models", "--trust", "pickle")
    assert done.status == 0, done.err
    assert repobuild_cli("validate", tmp_path / "models").status == 0
    [file] = (tmp_path / "models" / "m").glob("*labels*.txt")
    file.write_text("up\ndown\n")
    [wrong] = findings(repobuild_cli("validate", tmp_path / "models", "--json"))
    assert wrong["detail"] == f"{file.name} was changed since it was written"
    file.unlink()
    said = repobuild_cli("validate", tmp_path / "models")
    assert said.status == 3
    assert f"names a label file '{file.name}' that is not there" in said.err


def test_a_model_that_repobuild_did_not_build_has_nothing_to_be_compared_with(repository, repobuild_cli):
    shutil.copytree(repository / "risk" / "1", repository / "hand" / "1")
    text = (repository / "risk" / "config.pbtxt").read_text()
    (repository / "hand" / "config.pbtxt").write_text(
        "\n".join(text.split("\n")[1:]).replace('"risk"', '"hand"')
    )
    shutil.copytree(repository / "risk" / "warmup", repository / "hand" / "warmup")
    outcome = repobuild_cli("validate", repository, "hand", "--json")
    assert outcome.status == 0, outcome.err
    found = json.loads(outcome.out)["result"]["findings"]
    assert [(f["about"], f["outcome"]) for f in found] == [("config", "pass"), ("records", "skip")]


def test_a_step_that_was_not_finished_is_told(repository, repobuild_cli):
    repository.with_name("models.repobuild").joinpath(".journal").write_text("{}")
    outcome = repobuild_cli("validate", repository)
    assert outcome.status == 0
    assert "the next build settles that" in outcome.out


def test_only_named_models_are_checked(repository, repobuild_cli):
    (repository / "broken").mkdir()
    (repository / "broken" / "config.pbtxt").write_text("{")
    assert repobuild_cli("validate", repository, "risk").status == 0
    assert repobuild_cli("validate", repository).status == 3
    absent = repobuild_cli("validate", repository, "other")
    assert absent.status == 3
    assert "error[model-absent]" in absent.err


@pytest.mark.parametrize(("inside", "code"), [(None, "repository-missing"), ("", "repository-empty")])
def test_what_is_no_repository(tmp_path, repobuild_cli, inside, code):
    folder = tmp_path / "folder"
    if inside is not None:
        folder.mkdir()
    outcome = repobuild_cli("validate", folder)
    assert outcome.status == 3
    assert f"error[{code}]" in outcome.err


def test_the_folder_of_a_model_is_no_repository(repository, repobuild_cli):
    outcome = repobuild_cli("validate", repository / "risk")
    assert outcome.status == 3
    assert "hint: name the folder above it" in outcome.err
