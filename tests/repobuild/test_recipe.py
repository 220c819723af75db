"""Recipes: what is read, and every mistake with its line."""

import json

import pytest

from repobuild.errors import InputInvalid
from repobuild.recipe.load import load_recipe
from repobuild.recipe.types import Bounds
from repobuild.tensors import DType

GOOD = """\
name: risk_model
source:
  path: model.joblib
samples: samples.npy
inputs:
  - {name: INPUT0, dtype: FP32, dims: [2]}
outputs:
  - {name: OUTPUT0, from: "probabilities[:, 1:2]"}
tolerance: {atol: 1e-6, OUTPUT0: {rtol: 1e-3}}
serving:
  max_batch_size: 32
  dynamic_batching: {max_queue_delay_microseconds: 5000}
"""


@pytest.fixture
def refused(tmp_path):
    """The error that a recipe text is refused with."""

    def read(text):
        (tmp_path / "recipe.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(InputInvalid) as caught:
            load_recipe(tmp_path)
        return caught.value

    return read


def test_a_recipe_is_read_from_its_folder_with_paths_relative_to_it(tmp_path):
    (tmp_path / "recipe.yaml").write_text(GOOD)
    recipe = load_recipe(tmp_path)
    assert recipe.name == "risk_model"
    assert recipe.source.path == tmp_path / "model.joblib"
    assert recipe.source.given == "model.joblib"
    assert recipe.samples == tmp_path / "samples.npy"
    assert recipe.inputs[0].dtype is DType.FP32
    assert recipe.outputs[0].take == "probabilities[:, 1:2]"
    assert recipe.serving["dynamic_batching"] == {"max_queue_delay_microseconds": 5000}


def test_paths_of_a_linked_recipe_are_relative_to_the_link_as_it_was_named(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "one.yaml").write_text(GOOD)
    (tmp_path / "recipe.yaml").symlink_to(tmp_path / "shared" / "one.yaml")
    assert load_recipe(tmp_path / "recipe.yaml").samples == tmp_path / "samples.npy"


def test_tolerance_of_an_output_falls_back_to_the_common_one(tmp_path):
    (tmp_path / "recipe.yaml").write_text(GOOD)
    tolerance = load_recipe(tmp_path / "recipe.yaml").tolerance
    assert tolerance.of("OUTPUT0") == Bounds(1e-6, 1e-3)
    assert tolerance.of("other") == Bounds(1e-6, 1e-4)


def test_json_is_yaml(tmp_path):
    document = {"name": "m", "source": {"path": "m.joblib"}, "samples": "s.npy"}
    (tmp_path / "recipe.yaml").write_text(json.dumps(document, indent=1))
    assert load_recipe(tmp_path).name == "m"


def test_every_mistake_comes_at_once_with_line_and_key_path(refused):
    error = refused(
        """\
name: bad/name
source: {path: m.joblib, sha256: abc, kind: torchy}
sample: s.npy
inputs:
  - {name: A, dtype: FLOAT}
  - {name: A}
outputs:
  - {name: O, from: "x[1:2]"}
tolerance: {atol: -1}
serving:
  max_batch_size: "32"
  dynamic_batching: {max_queue_delay: 5}
  instance_group: [{kind: KIND_CPUS}]
  backend: python
"""
    )
    assert (error.code, error.exit_code) == ("recipe-invalid", 3)
    found = {(e.line, e.key) for e in error.evidence}
    assert found == {
        (1, "name"),
        (2, "source.sha256"),
        (2, "source.kind"),
        (3, "sample"),
        (5, "inputs[0].dtype"),
        (6, "inputs[1].name"),
        (8, "outputs[0].from"),
        (9, "tolerance.atol"),
        (11, "serving.max_batch_size"),
        (12, "serving.dynamic_batching.max_queue_delay"),
        (13, "serving.instance_group[0].kind"),
        (14, "serving.backend"),
    }
    text = error.render()
    assert "did you mean 'samples'?" in text
    assert "did you mean 'max_queue_delay_microseconds'?" in text
    assert str(error.evidence[0].file).endswith("recipe.yaml")


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("name: [1\n", "recipe-not-yaml", 2),
        ("name: a\nname: b\n", "recipe-not-yaml", 2),
        ("a: &x 1\n", "recipe-not-plain", 1),
        ("a: 1\nb: *x\n", "recipe-not-plain", 2),
        ("a: 1\nserving:\n  <<: {max_batch_size: 4}\n", "recipe-not-plain", 3),
        ("a: 1\nb: !!python/object:os.system x\n", "recipe-not-plain", 2),
        ("- just\n- a list\n", "recipe-invalid", 1),
        ("", "recipe-invalid", 1),
        (b"\xff\xfe\x00", "recipe-not-text", None),
        ("x: " + "a" * (1 << 20), "recipe-too-large", None),
        ("x: " + "[" * 5000, "recipe-not-plain", 1),
    ],
)
def test_files_that_are_no_recipe_are_named(refused, text, code, line):
    error = refused(text)
    assert error.code == code
    assert line is None or error.evidence[0].line == line


def test_a_missing_recipe_is_named(tmp_path):
    with pytest.raises(InputInvalid) as caught:
        load_recipe(tmp_path / "nowhere.yaml")
    assert caught.value.code == "recipe-missing"


@pytest.mark.parametrize("name", ["a/b", "..", ".x", "-x", "a b", "", "a.", "x" * 129, "é", "a\n"])
def test_model_names_that_a_file_system_or_shell_cannot_bear_are_refused(refused, name):
    error = refused(json.dumps({"name": name, "source": {"path": "m"}, "samples": "s"}))
    assert [e.key for e in error.evidence] == ["name"]


def test_preferred_batch_sizes_above_the_maximum_are_refused(refused):
    error = refused(
        json.dumps(
            {
                "name": "m",
                "source": {"path": "m"},
                "samples": "s",
                "serving": {"max_batch_size": 4, "dynamic_batching": {"preferred_batch_size": [2, 8]}},
            },
            indent=1,
        )
    )
    assert "preferred batch size 8 is larger than max_batch_size 4" in error.render()
