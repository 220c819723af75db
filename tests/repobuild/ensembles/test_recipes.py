"""Recipes of ensembles: every mistake at its key, and the wiring that comes out."""

import json

import jsonschema
import pytest

from repobuild.errors import InputInvalid
from repobuild.recipe.jsonschema import recipe_schema
from repobuild.recipe.load import load_recipe


def python(name, takes, makes, **more):
    """A python step over FP32 rows of two numbers, with the tensors of the ensemble under their own names."""
    tensor = {"dtype": "FP32", "dims": [2]}
    return {
        "name": name,
        "python": {
            "file": f"{name}.py",
            "inputs": [{"name": n, **tensor} for n in takes],
            "outputs": [{"name": n, **tensor} for n in makes],
        },
        **more,
    }


def recipe(*steps, **ensemble):
    return {"name": "e", "ensemble": {"steps": list(steps), **ensemble}, "samples": "s.npz"}


def loaded(tmp_path, document):
    (tmp_path / "recipe.yaml").write_text(json.dumps(document))
    return load_recipe(tmp_path)


def mistakes(tmp_path, document):
    with pytest.raises(InputInvalid) as caught:
        loaded(tmp_path, document)
    return [(e.key, e.text) for e in caught.value.evidence]


A, B = python("a", ["x"], ["y"]), python("b", ["y"], ["z"])
MISTAKES = {
    "cycle": (recipe(python("a", ["x", "z"], ["y"]), B, python("c", ["z"], ["out"])), "wait for each other"),
    "of itself": (recipe(python("a", ["x"], ["y"], input_map={"x": "y"})), "which it makes itself"),
    "two makers": (recipe(A, python("b", ["x"], ["y"])), "is made by step 'a' already"),
    "unknown tensor": (recipe(A, B, inputs=["w"]), "input 'w' is taken by no step"),
    "not listed": (
        recipe(python("a", ["x", "w"], ["y"]), inputs=["x"]),
        "is made by no step and is no input of the ensemble",
    ),
    "makes an input": (recipe(A, inputs=["x", "y"]), "is an input of the ensemble"),
    "unknown output": (recipe(A, outputs=["q"]), "output 'q' is made by no step"),
    "named and unused": (
        recipe(python("a", ["x"], ["y", "w"], output_map={"w": "spare"}), B, outputs=["z"]),
        "'spare' is taken by no step",
    ),
    "idle step": (recipe(A, python("b", ["x"], ["w"]), outputs=["y"]), "nothing that step 'b' makes"),
    "listed twice": (recipe(A, outputs=["y", "y"]), "is named twice"),
    "two names": (recipe(A, python("a", ["y"], ["z"])), "name 'a' is that of step 'a'"),
    "names by case": (recipe(A, python("A", ["y"], ["z"])), "differ in more than case"),
    "name of the whole": (recipe(python("a", ["x"], ["y"], model="e")), "is that of the ensemble"),
    "unsafe name": (recipe(python("../a", ["x"], ["y"])), "must be 1 to 128 letters"),
    "no steps": (recipe(), "at least 1 item"),
    "both kinds": (recipe({**A, "recipe": "m.yaml"}), "either python: or recipe:"),
    "neither kind": (recipe({"name": "a"}), "either python: or recipe:"),
    "no maps": (recipe({"name": "a", "recipe": "m.yaml"}), "needs input_map and output_map"),
    "map of no tensor": (recipe({**A, "input_map": {"q": "x"}}), "has no input 'q'"),
    "zero dims": (
        recipe({**A, "python": {**A["python"], "inputs": [{"name": "x", "dtype": "FP32", "dims": [0]}]}}),
        "must be positive, or -1",
    ),
    "odd type": (
        recipe({**A, "python": {**A["python"], "inputs": [{"name": "x", "dtype": "BF16", "dims": [1]}]}}),
        "Input should be",
    ),
    "own file": (recipe({**A, "python": {**A["python"], "file": "model.py"}}), "repobuild's own"),
    "no python file": (recipe({**A, "python": {**A["python"], "file": "a.txt"}}), "must be a python file"),
    "hidden file": (recipe({**A, "python": {**A["python"], "files": [".env"]}}), "no plain file name"),
    "file twice": (recipe({**A, "python": {**A["python"], "files": ["x/A.PY"]}}), "that of another file"),
    "policy": (recipe({**A, "serving": {"version_policy": {"all": {}}}}), "the ensemble decides"),
    "missing recipe": (
        recipe({"name": "a", "recipe": "no.yaml", "input_map": {"x": "x"}, "output_map": {"y": "y"}}),
        "is not usable",
    ),
    "own recipe": (
        recipe({"name": "a", "recipe": "recipe.yaml", "input_map": {"x": "x"}, "output_map": {"y": "y"}}),
        "the recipe of the ensemble itself",
    ),
    "source beside": ({**recipe(A), "source": {"path": "m"}}, "unknown key"),
    "scheduling": ({**recipe(A), "serving": {"dynamic_batching": {}}}, "Input should be"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_told_with_its_place(tmp_path, name):
    document, text = MISTAKES[name]
    found = mistakes(tmp_path, document)
    assert any(text in told for _, told in found), found
    assert all(key.startswith(("ensemble", "source", "serving")) for key, _ in found)


def test_steps_are_ordered_by_what_they_take(tmp_path):
    whole = loaded(tmp_path, recipe(python("c", ["z", "y"], ["out"]), B, A)).ensemble
    assert [s.name for s in whole.steps] == ["a", "b", "c"]
    assert (whole.inputs, whole.outputs) == (("x",), ("out",))
    assert [s.model for s in whole.steps] == ["e_a", "e_b", "e_c"]


def test_lists_give_the_order_and_what_else_is_served(tmp_path):
    whole = loaded(tmp_path, recipe(python("a", ["x", "w"], ["y"]), B, inputs=["w", "x"], outputs=["z", "y"]))
    assert (whole.ensemble.inputs, whole.ensemble.outputs) == (("w", "x"), ("z", "y"))


def test_an_output_that_nobody_names_may_be_left_out(tmp_path):
    whole = loaded(tmp_path, recipe(python("a", ["x"], ["y", "spare"]), outputs=["y"])).ensemble
    assert whole.steps[0].output_map == {"y": "y"}


def test_a_recipe_of_a_step_may_not_be_an_ensemble_or_have_labels(tmp_path):
    inner = {"name": "m", "source": {"path": "m.onnx"}, "labels": "y.npy"}
    (tmp_path / "m.yaml").write_text(json.dumps(inner))
    (tmp_path / "n.yaml").write_text(json.dumps(recipe(A)))
    maps = {"input_map": {"x": "x"}, "output_map": {"y": "y"}}
    found = mistakes(tmp_path, recipe({"name": "a", "recipe": "m.yaml", **maps}))
    assert [key for key, told in found if "labels:" in told] == ["ensemble.steps[0].recipe"]
    found = mistakes(tmp_path, recipe({"name": "a", "recipe": "n.yaml", **maps}))
    assert "is not usable" in found[0][1]


@pytest.mark.parametrize("name", ["no steps", "odd type", "source beside", "scheduling"])
def test_the_schema_refuses_what_it_can_see(name):
    validator = jsonschema.Draft202012Validator(recipe_schema())
    assert not validator.is_valid(MISTAKES[name][0])


def test_the_schema_takes_ensembles_and_single_models():
    validator = jsonschema.Draft202012Validator(recipe_schema())
    assert validator.is_valid(recipe(A, B, inputs=["x"]))
    assert validator.is_valid({"name": "m", "source": {"path": "m"}})
    assert not validator.is_valid({"name": "m"})
