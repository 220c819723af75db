"""``repobuild schema``: the JSON Schema takes what the loader takes, and refuses what it refuses."""

import json
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from repobuild.errors import InputInvalid
from repobuild.recipe.ensemble_schema import EnsembleDocument
from repobuild.recipe.implied import made_recipe
from repobuild.recipe.jsonschema import recipe_schema
from repobuild.recipe.schema import RecipeDocument

ROOT = Path(__file__).parents[2]
LEAST = {"name": "m", "source": {"path": "m.joblib"}, "samples": "s.npy"}
GOOD = [
    LEAST,
    {
        **LEAST,
        "inputs": [{"name": "X", "dtype": "FP32", "dims": [2]}],
        "outputs": [{"name": "P", "from": "a[:, 1]"}],
    },
    {**LEAST, "tolerance": {"atol": 1, "label": {"rtol": 0}}, "serving": {"max_batch_size": 8}},
    {**LEAST, "source": {"path": "m", "sha256": "A" * 64}, "export": {"opset": 17}},
    {**LEAST, "target": {"triton": "26.08"}, "budget": {"label_flips": 0, "file_mb": 1.5}, "labels": "y.npy"},
    {**LEAST, "targets": ["onnxruntime"]},
    {**LEAST, "targets": [{"kind": "onnxruntime"}]},
]
BAD = [
    [],
    {},
    {**LEAST, "bogus": 1},
    {**LEAST, "name": "a b"},
    {**LEAST, "name": ""},
    {**LEAST, "name": "a" * 129},
    {**LEAST, "source": {}},
    {**LEAST, "source": {"path": "m", "sha256": "xyz"}},
    {**LEAST, "export": {"opset": 99}},
    {**LEAST, "export": {"opset": "17"}},
    {**LEAST, "inputs": [{"dtype": "FP32"}]},
    {**LEAST, "inputs": [{"name": "X", "dtype": "FLOAT"}]},
    {**LEAST, "inputs": [{"name": "X", "dims": [0]}]},
    {**LEAST, "tolerance": {"atol": -1}},
    {**LEAST, "tolerance": {"label": {"bogus": 1}}},
    {**LEAST, "serving": {"bogus": 1}},
    {**LEAST, "serving": {"backend": "python"}},
    {**LEAST, "budget": {"label_flips": -1}},
    {**LEAST, "target": {"triton": "latest"}},
]


@pytest.fixture(scope="module")
def schema():
    """The schema, known to be one itself."""
    made = recipe_schema()
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


@pytest.mark.parametrize("document", GOOD, ids=json.dumps)
def test_good_recipes_pass_both_the_schema_and_the_loader(schema, document):
    schema.validate(document)
    made_recipe(document)


@pytest.mark.parametrize("document", BAD, ids=json.dumps)
def test_bad_recipes_pass_neither(schema, document):
    assert list(schema.iter_errors(document))
    with pytest.raises(InputInvalid):
        made_recipe(document)


@pytest.mark.parametrize(
    "recipe", sorted((ROOT / "recipes").glob("*/recipe.yaml")), ids=lambda p: p.parent.name
)
def test_every_worked_example_passes(schema, recipe):
    schema.validate(YAML(typ="safe").load(recipe.read_text()))


def test_every_key_has_a_title_and_a_description(schema):
    one, several = schema.schema["else"], schema.schema["then"]
    sections = [one, several, *schema.schema["$defs"].values()]
    assert list(one["properties"]) == list(RecipeDocument.model_fields)
    assert list(several["properties"]) == list(EnsembleDocument.model_fields)
    for section in sections:
        for key, held in section.get("properties", {}).items():
            assert {"title", "description"} <= held.keys(), key


def test_the_command_prints_it(repobuild_cli):
    outcome = repobuild_cli("schema")
    assert outcome.status == 0
    printed = json.loads(outcome.out)
    assert printed == recipe_schema()
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert printed["title"] == "repobuild recipe"
