"""The command line without a recipe, drafts for bare weights, and what is TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from repobuild.recipe.load import load_recipe

LINEAR = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 2)

        def forward(self, x):
            return self.lin(x)
"""


@pytest.fixture
def weights(torch_project):
    """A folder with ``weights.pt``, ``net.py`` and ``samples.npz``."""
    _, recipe = torch_project(LINEAR, {"x": np.ones((3, 4), np.float32)})
    recipe.unlink()
    return recipe.parent


def test_weights_convert_without_a_recipe(weights, repobuild_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(weights)
    words = ("--set", "source.module.file=net.py", "--set", "source.module.class=Net")
    outcome = repobuild_cli(
        "convert",
        "weights.pt",
        "-r",
        tmp_path / "models",
        *words,
        "--trust",
        "module",
        "--samples",
        "samples.npz",
    )
    assert outcome.status == 0, outcome.err


def test_a_draft_for_bare_weights_has_a_module_to_fill_in(weights, repobuild_cli, tmp_path):
    draft = weights / "recipe.yaml"
    outcome = repobuild_cli("init", weights / "weights.pt", "--samples", weights / "samples.npz", "-o", draft)
    assert outcome.status == 0, outcome.err
    assert "fill in source.module" in outcome.err
    recipe = load_recipe(draft)
    assert recipe.source.module == {"file": "net.py", "class": "Net", "kwargs": {}}
    assert draft.read_text().count("module:") == 1
    done = repobuild_cli("convert", draft, "-r", tmp_path / "models", "--trust", "module")
    assert done.status == 0, done.err


def test_a_draft_without_code_beside_the_weights_says_what_to_fill_in(repobuild_cli, tmp_path):
    torch.save({"w": torch.zeros(2)}, tmp_path / "w.pt")
    outcome = repobuild_cli("init", tmp_path / "w.pt", "-o", tmp_path / "r.yaml")
    assert outcome.status == 0, outcome.err
    assert "module:  # fill in" in (tmp_path / "r.yaml").read_text()
    planned = repobuild_cli("plan", tmp_path / "r.yaml")
    assert "Traceback" not in planned.err + planned.out


FILES = {
    "net.keras": None,
    "net.h5": b"\x89HDF\r\n\x1a\n" + bytes(30),
    "net.tflite": b"\x1c\x00\x00\x00TFL3" + bytes(30),
}


@pytest.mark.parametrize("name", ["folder", *FILES])
@pytest.mark.parametrize("command", ["convert", "init", "plan"])
def test_models_of_tensorflow_are_refused_with_two_commands(name, command, repobuild_cli, tmp_path):
    import zipfile

    place = tmp_path / name
    if name == "folder":
        place.mkdir()
        (place / "saved_model.pb").write_bytes(b"\x08\x01")
    elif FILES[name] is None:
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr("config.json", "{}")
            archive.writestr("model.weights.h5", "")
    else:
        place.write_bytes(FILES[name])
    words = ("-r", tmp_path / "models") if command == "convert" else ()
    outcome = repobuild_cli(command, place, *words)
    told = outcome.out + outcome.err
    assert outcome.status == (5 if command != "plan" or name == "folder" else outcome.status)
    assert "error[source-tensorflow]" in told
    assert "pip install tensorflow tf2onnx" in told
    flag = {"folder": "--saved-model", "net.tflite": "--tflite"}.get(name, "format='onnx'")
    assert flag in told.replace("'\"'\"'", "'")
