"""Ensembles built, served and built again."""

import json

import numpy as np
import pytest

from repobuild.emit.config import read_config
from repobuild.lint.finding import Severity
from repobuild.lint.run import lint
from repobuild.releases import newest

SUM = """
    def run(inputs):
        return {"out": (inputs["one"] + inputs["other"]).astype("float32")}
"""
SCALE = """
    def run(inputs, parameters):
        return {"y": inputs["x"] * inputs["x"].dtype.type(parameters["by"])}
"""


def ask(address, model, texts):
    """Labels of texts through the real client."""
    from tritonclient.http import InferenceServerClient, InferInput

    client = InferenceServerClient(address.removeprefix("http://"))
    try:
        tensor = InferInput("TEXT", [len(texts), 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[t.encode()] for t in texts], dtype=object))
        return [v.decode() for v in client.infer(model, [tensor]).as_numpy("label").ravel()]
    finally:
        client.close()


def pins(repository, model="toy"):
    """Versions that the ensemble names, by model."""
    return {
        s.model_name: s.model_version for s in read_config(repository / model)[1].ensemble_scheduling.step
    }


def manifest(toy, model, version=1):
    return json.loads((toy.home / "models.repobuild" / model / str(version) / "manifest.json").read_text())


def test_an_ensemble_is_built_and_serves(toy, served):
    out = toy.built()
    assert "PASSED toy version 1" in out
    assert toy.versions() == {"toy": [1], "toy_label": [1], "toy_split": [1]}
    assert pins(toy.repository) == {"toy_split": 1, "toy_label": 1}
    assert [f for f in lint(toy.repository, newest()).findings if f.severity is Severity.ERROR] == []
    with served(toy.repository) as server:
        assert ask(server.address, "toy", ["na\u00efve caf\u00e9", "one two three four"]) == ["short", "long"]
        assert ask(server.address, "toy", ["internationalisation"]) == ["long"]


def test_records_say_that_there_is_code_and_whose_it_is(toy):
    toy.built()
    for model in ("toy", "toy_label", "toy_split"):
        found = manifest(toy, model)
        assert (found["carries_code"], found["ensemble"]) == (True, "toy")
    report = json.loads((toy.home / "models.repobuild/toy/1/report.json").read_text())
    assert [(s["name"], s["model"], s["version"]) for s in report["steps"]] == [
        ("split", "toy_split", 1),
        ("label", "toy_label", 1),
    ]


def test_equal_content_changes_nothing(toy):
    toy.built()
    before = {p: p.read_bytes() for p in toy.home.glob("models*/**/*") if p.is_file()}
    assert "unchanged" in toy.built()
    assert {p: p.read_bytes() for p in toy.home.glob("models*/**/*") if p.is_file()} == before


def test_what_python_writes_beside_a_served_model_is_no_change(toy):
    toy.built()
    cache = toy.repository / "toy_label/1/__pycache__"
    cache.mkdir()
    (cache / "model.cpython-310.pyc").write_bytes(b"x")
    assert "unchanged" in toy.built()
    assert toy.run("validate").status != 70


def test_a_changed_step_gets_a_version_and_the_ensemble_names_it(toy, served):
    toy.built()
    toy.write("label.py", (toy.home / "label.py").read_text().replace("> 10", "> 100"))
    toy.built()
    assert toy.versions() == {"toy": [1, 2], "toy_label": [1, 2], "toy_split": [1]}
    assert pins(toy.repository) == {"toy_split": 1, "toy_label": 2}
    policy = read_config(toy.repository / "toy_label")[1].version_policy.specific.versions
    assert list(policy) == [2]
    with served(toy.repository) as server:
        assert ask(server.address, "toy", ["one two three four"]) == ["short"]


def test_a_changed_configuration_of_a_step_is_no_new_version(toy):
    toy.built()
    toy.steps[0]["serving"] = {"instance_group": [{"count": 2, "kind": "KIND_CPU"}]}
    toy.built()
    assert toy.versions() == {"toy": [1], "toy_label": [1], "toy_split": [1]}
    assert read_config(toy.repository / "toy_split")[1].instance_group[0].count == 2


def test_another_interface_is_refused_without_a_word(toy):
    toy.built()
    for step, side in ((0, "outputs"), (1, "inputs")):
        toy.steps[step]["python"][side][0]["dims"] = [5]
    toy.steps[0]["python"]["parameters"]["length"] = 5
    assert "toy_split" in toy.refused("schema-changed")
    toy.built("--allow-schema-change")
    assert pins(toy.repository) == {"toy_split": 2, "toy_label": 2}


def test_an_edited_configuration_is_not_overwritten_without_a_word(toy):
    toy.built()
    config = toy.repository / "toy_split/config.pbtxt"
    config.write_text(config.read_text().replace("count: 1", "count: 3"))
    assert "-  count: 3" in toy.refused("config-edited")
    toy.built("--update-config")
    assert read_config(toy.repository / "toy_split")[1].instance_group[0].count == 1


def test_one_step_is_an_ensemble_too(toy):
    del toy.recipe["ensemble"]["steps"][1]
    toy.built()
    assert pins(toy.repository) == {"toy_split": 1}


def tensor(name, dims=(2,)):
    return {"name": name, "dtype": "FP32", "dims": list(dims)}


def python(name, file, takes, makes, **more):
    return {
        "name": name,
        "python": {"file": file, "inputs": takes, "outputs": makes, **more.pop("python", {})},
        **more,
    }


def diamond(toy, dims=(2,)):
    """x to two scaled tensors, and their sum."""
    toy.write("scale.py", SCALE)
    toy.write("sum.py", SUM)
    toy.recipe["ensemble"]["steps"] = [
        python(
            "sum",
            "sum.py",
            [tensor("one", dims), tensor("other", dims)],
            [tensor("out", dims)],
            input_map={"one": "twice", "other": "thrice"},
        ),
        *(
            python(
                f"by{by}",
                "scale.py",
                [tensor("x", dims)],
                [tensor("y", dims)],
                python={"parameters": {"by": by}},
                output_map={"y": name},
            )
            for by, name in ((2, "twice"), (3, "thrice"))
        ),
    ]


def test_a_diamond_of_steps_in_any_order(toy, served):
    diamond(toy)
    toy.samples(x=np.arange(12, dtype=np.float32).reshape(6, 2))
    toy.built()
    with served(toy.repository) as server:
        row = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.5, -2.0]}
        assert server.infer("toy", row)["outputs"][0]["data"] == [7.5, -10.0]


def test_without_a_batch_dimension_the_samples_are_one_request(toy, served):
    diamond(toy, dims=(-1, 2))
    toy.recipe["serving"] = {"max_batch_size": 0}
    toy.samples(x=np.arange(6, dtype=np.float32).reshape(3, 2))
    toy.built()
    with served(toy.repository) as server:
        row = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.5, -2.0]}
        assert server.infer("toy", row)["outputs"][0]["data"] == [7.5, -10.0]


def test_a_step_may_have_a_model_name_of_its_own(toy):
    toy.steps[0]["model"] = "tokens"
    toy.built()
    assert pins(toy.repository) == {"tokens": 1, "toy_label": 1}


def test_an_error_of_a_request_is_that_request_s_own(toy, served):
    toy.write(
        "label.py",
        """
        import numpy as np

        def run(inputs):
            if (inputs["ids"] == 7).any():
                raise ValueError("seven letters")
            return {"label": np.array([["x"]] * len(inputs["ids"]), dtype=object)}
        """,
    )
    toy.built()
    from tritonclient.utils import InferenceServerException

    with served(toy.repository) as server:
        with pytest.raises(
            InferenceServerException, match=r"step label: ValueError: seven letters \(label.py"
        ):
            ask(server.address, "toy", ["letters"])
        assert ask(server.address, "toy", ["fine"]) == ["x"]


def test_expected_answers_are_held_against_the_chain(toy):
    np.savez(toy.home / "expected.npz", label=["long", "short", "short", "long", "long", "short"])
    toy.recipe["expected"] = "expected.npz"
    assert "expected: label" in toy.built()
    np.savez(toy.home / "expected.npz", label=["long", "long", "short", "long", "long", "short"])
    error = toy.refused("check-failed")
    assert "row 1[0]: the steps answer 'short', expected is 'long'" in error
    np.savez(toy.home / "expected.npz", label=["long"])
    toy.refused("expected-unfit")
    np.savez(toy.home / "expected.npz", other=["long"] * 6)
    assert "is no output" in toy.refused("expected-unfit")


def test_plan_inspect_lint_and_validate_know_ensembles(toy, repobuild_cli):
    plan = toy.run("plan", "-r", toy.repository, "--trust", "module")
    assert plan.status == 0, plan.err
    assert "split toy_split: function run of split.py" in plan.out
    assert toy.run("plan").status == 6
    toy.built()
    assert "toy_split" in repobuild_cli("inspect", toy.repository).out
    assert repobuild_cli("lint", toy.repository).status == 0
    validated = repobuild_cli("validate", toy.repository)
    assert validated.status == 0, validated.err
    assert "carries code" in validated.out
    (toy.repository / "toy_label/1/label.py").write_text("")
    assert repobuild_cli("validate", toy.repository).status == 3


def test_build_takes_ensembles_beside_models(toy, repobuild_cli):
    toy.save()
    built = repobuild_cli("build", toy.home, "-r", toy.repository, "--trust", "module", "--progress", "quiet")
    assert built.status == 0, built.err
    assert "1 new" in built.out


def test_equal_builds_are_byte_identical(toy, tmp_path, repobuild_cli):
    toy.built()
    other = repobuild_cli(
        "convert", toy.save(), "-r", tmp_path / "other", "--trust", "module", "--progress", "quiet"
    )
    assert other.status == 0, other.err

    def content(name):
        folders = (tmp_path / name, tmp_path / f"{name}.repobuild")
        return {
            p.relative_to(folder).as_posix(): p.read_bytes()
            for folder in folders
            for p in folder.rglob("*")
            if p.is_file()
        }

    assert content("models") == content("other")
