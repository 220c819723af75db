"""Files that a model's code plants where its conversion writes or reads lead nowhere."""

import json
import subprocess
import sys

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

ROWS = np.random.default_rng(0).normal(size=(20, 3))
CLASSES = (ROWS[:, 0] > 0).astype(int)
NAMES = (
    "graph.onnx",
    "probe.onnx",
    "exported.onnx",
    "model.onnx",
    "question.npz",
    "answer.npz",
    "worker.log",
)


class Planting:
    """Runs code when it is loaded, and is then the model."""

    def __init__(self, code, model):
        self.code, self.model = code, model

    def __reduce__(self):
        return (_Maker(self.code), (self.model,))


class _Maker:
    def __init__(self, code):
        self.code = code

    def __reduce__(self):
        return (eval, (f"lambda model: (exec({self.code!r}), model)[1]",))

    def __call__(self, model):
        return model


def writes_are_held(folder):
    code = "import sys; from repobuild.worker.sandbox import enter; print(enter(sys.argv[1:]).writes)"
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    return done.stdout.startswith("held")


@pytest.fixture
def convert_planting(tmp_path, repobuild_cli):
    def run(code):
        home = tmp_path / "project"
        home.mkdir()
        model = LogisticRegression().fit(ROWS, CLASSES)
        joblib.dump(Planting(code, model), home / "model.joblib")
        np.save(home / "samples.npy", ROWS)
        recipe = {"name": "m", "source": {"path": "model.joblib"}, "samples": "samples.npy"}
        (home / "recipe.yaml").write_text(json.dumps(recipe))
        return repobuild_cli("convert", home, "-r", tmp_path / "repository", "--trust", "pickle")

    return run


@pytest.mark.parametrize("where", [".", ".."], ids=["its own folder", "the build's"])
def test_links_that_a_model_plants_are_not_followed(convert_planting, tmp_path, where):
    if where == ".." and not writes_are_held(tmp_path):
        pytest.skip("this kernel has no Landlock")
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    outcome = convert_planting(
        "import os\n"
        f"for name in {NAMES!r}:\n"
        "    try:\n"
        f"        os.symlink({str(victim)!r}, os.path.join({where!r}, name))\n"
        "    except OSError:\n"
        "        pass\n"
    )
    assert victim.read_text() == "as it was"
    assert outcome.status in (0, 7), outcome.err
    assert outcome.status == 0 or "error[worker-" in outcome.err or "error[permission-denied]" in outcome.err


@pytest.mark.parametrize("name", ["exported.onnx", "answer.npz"])
@pytest.mark.parametrize("make", ["os.mkfifo(name)", "os.mkdir(name)", "os.symlink('/dev/zero', name)"])
def test_what_is_no_file_is_an_error_and_nobody_waits_for_it(convert_planting, make, name, monkeypatch):
    monkeypatch.setenv("REPOBUILD_WORKER_TIMEOUT", "20")
    outcome = convert_planting(f"import os; name = {name!r}; {make}")
    assert outcome.status in (0, 7), outcome.err
    assert outcome.err.count("error[") == (outcome.status == 7)
