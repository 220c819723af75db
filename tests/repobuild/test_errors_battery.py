"""Every way a build is known to go wrong, in one table: what it says, and that nothing was touched.

Each case starts from a repository with one finished version, and the build would add a second one.
"""

import errno
import importlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import psutil
import pytest
import tritonclient.http
import tritonclient.http.aio
from sklearn.linear_model import Ridge

from repobuild import pipeline
from repobuild.cli import main
from repobuild.emit.config import read_config
from repobuild.verify.server import BundledServer

ROWS = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
FIRST, SECOND = (Ridge(alpha).fit(ROWS, ROWS.sum(1)) for alpha in (1, 10))


def write_project(home, model):
    """A folder with a recipe, a model and samples."""
    home.mkdir()
    joblib.dump(model, home / "model.joblib")
    np.save(home / "samples.npy", ROWS)
    write_recipe(home)


def write_recipe(home, **keys):
    """The recipe, with keys changed."""
    document = {"name": "model", "source": {"path": "model.joblib"}, "samples": "samples.npy", **keys}
    (home / "recipe.yaml").write_text(json.dumps(document, indent=1))


def everything(folder):
    """All that lies below a folder: kinds, modes and contents."""
    return {
        p.relative_to(folder).as_posix(): (p.lstat().st_mode, p.read_bytes() if p.is_file() else None)
        for p in folder.rglob("*")
    }


@dataclass(frozen=True)
class Told:
    """An error as it stands on standard error."""

    code: str
    evidence: str
    hint: str

    @classmethod
    def read(cls, text):
        """The one error of a text, told once."""
        assert "Traceback" not in text
        lines = text.splitlines()
        [start] = [i for i, line in enumerate(lines) if line.startswith("error[")]
        rest = lines[start + 1 :]
        [end] = [i for i, line in enumerate(rest) if line.startswith("hint: ")]
        assert all(line.startswith("  ") for line in rest[:end]), text
        return cls(re.match(r"error\[(.+?)\]: ", lines[start])[1], "\n".join(rest[:end]), rest[end][6:])


def expect(outcome, status, code, evidence, hint):
    """The run ended with this error."""
    told = Told.read(outcome.err)
    assert (outcome.status, told.code) == (status, code), outcome.err
    assert evidence in told.evidence, outcome.err
    assert hint in told.hint, outcome.err


@dataclass(frozen=True)
class Ran:
    """What a command of its own gave."""

    status: int
    err: str


def run(command):
    """Run a command of its own."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return Ran(done.returncode, done.stderr)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a repository that holds version 1."""
    home = tmp_path_factory.mktemp("finished")
    write_project(home / "project", FIRST)
    words = ["convert", home / "project", "-r", home / "there" / "repository", "--trust", "pickle", "-q"]
    assert main([str(w) for w in words]) == 0
    return home / "there"


@dataclass(frozen=True)
class Place:
    """Where a case plays."""

    home: Path
    there: Path

    @property
    def repository(self):
        return self.there / "repository"

    def convert(self, cli, *words):
        """Build the second version."""
        return cli("convert", self.home, "-r", self.repository, "--trust", "pickle", *words)


@pytest.fixture
def place(finished, tmp_path, monkeypatch):
    """A project, the repository with version 1, and an empty folder for temporary files; both stay so."""
    shutil.copytree(finished, tmp_path / "there")
    write_project(tmp_path / "project", SECOND)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = everything(tmp_path / "there")
    yield Place(tmp_path / "project", tmp_path / "there")
    monkeypatch.undo()
    assert everything(tmp_path / "there") == before
    assert list(temporary.iterdir()) == []
    assert {p.name for p in tmp_path.iterdir()} <= {"project", "there", "temporary"}


@dataclass(frozen=True)
class Case:
    """One thing that is wrong with the files of a project, and what has to be said about it."""

    spoil: Callable[[Path], object]
    status: int
    code: str
    evidence: str
    hint: str


def model_file(data):
    """The model file holds something else."""
    return lambda home: (home / "model.joblib").write_bytes(data)


def sample_rows(rows):
    """The samples are others."""
    return lambda home: np.save(home / "samples.npy", rows)


def recipe(**keys):
    """The recipe says something else."""
    return lambda home: write_recipe(home, **keys)


def cut(home):
    file = home / "model.joblib"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"

CASES = {
    "missing model": Case(
        lambda home: (home / "model.joblib").unlink(),
        3,
        "model-missing",
        "no such file",
        "paths in a recipe are relative",
    ),
    "empty model": Case(model_file(b""), 3, "model-empty", "0 bytes", "save the model again"),
    "truncated model": Case(cut, 3, "model-truncated", "ends in the middle", "save or fetch it again"),
    "Git LFS pointer": Case(
        model_file(POINTER), 3, "model-lfs-pointer", "model.joblib:1: version https://git-lfs", "git lfs pull"
    ),
    "web page": Case(
        model_file(PAGE), 3, "model-is-web-page", "model.joblib:1: <!DOCTYPE html>", "fetch the file again"
    ),
    "not a model": Case(
        model_file(b"\x89PNG\r\n\x1a\n" + bytes(64)), 3, "model-not-pickle", "x89PNG", "joblib.dump"
    ),
    "not an estimator": Case(
        lambda home: joblib.dump({"a": 1}, home / "model.joblib"),
        3,
        "not-an-estimator",
        "a dict, with keys 'a'",
        "save the fitted estimator",
    ),
    "wrong pin": Case(
        recipe(source={"path": "model.joblib", "sha256": "0" * 64}),
        6,
        "pin-mismatch",
        "source.sha256: the recipe pins 0000",
        "put its new digest into the recipe",
    ),
    "no sample file": Case(
        lambda home: (home / "samples.npy").unlink(),
        3,
        "samples-unfit",
        "no such file",
        "paths in a recipe are relative",
    ),
    "empty sample file": Case(
        lambda home: (home / "samples.npy").write_bytes(b""),
        3,
        "samples-unfit",
        "No data",
        "write the file again",
    ),
    "samples without rows": Case(
        sample_rows(ROWS[:0]), 3, "samples-unfit", "at least 2 rows", "save more rows"
    ),
    "samples too narrow": Case(
        sample_rows(ROWS[:, :2]), 3, "samples-unfit", "is [24, 2]", "give the columns"
    ),
    "samples too wide": Case(
        sample_rows(np.c_[ROWS, ROWS]), 3, "samples-unfit", "is [24, 6]", "give the columns"
    ),
    "samples of text": Case(sample_rows(ROWS.astype(str)), 3, "samples-unfit", "<U32", "save the samples"),
    "complex samples": Case(
        sample_rows(ROWS.astype(complex)), 3, "samples-unfit", "complex128", "save the samples"
    ),
    "unknown recipe key": Case(
        recipe(sample="samples.npy"), 3, "recipe-invalid", "recipe.yaml:7: sample: unknown", "docs/recipes.md"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_wrong_with_the_files_is_told(repobuild_cli, place, case):
    case.spoil(place.home)
    expect(place.convert(repobuild_cli), case.status, case.code, case.evidence, case.hint)


def test_two_recipes_of_one_name_are_told_with_both_files(repobuild_cli, place):
    shutil.copytree(place.home, place.home / "copy")
    outcome = repobuild_cli("build", place.home, "-r", place.repository, "--trust", "pickle")
    expect(outcome, 3, "model-name-clash", "copy/recipe.yaml:2: name: 'model'", "names must differ")


def test_a_target_that_is_mounted_read_only_is_told(place):
    """The mount is seen by the build alone, which runs in a mount namespace of its own."""
    script = 'mount -t tmpfs t "$1" && cp -a "$2"/. "$1" && mount -o remount,ro "$1" && shift 2 && exec "$@"'
    copy = place.home / "copy"
    shutil.copytree(place.there, copy)
    words = ["convert", place.home, "-r", place.repository, "--trust", "pickle"]
    command = ["unshare", "--mount", "sh", "-ec", script, "sh", place.there, copy, sys.executable, "-m"]
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not permitted")
    outcome = run([*command, "repobuild", *words])
    expect(outcome, 7, "permission-denied", "Read-only file system", "not mounted read-only")


def test_a_target_that_refuses_new_folders_is_told(repobuild_cli, place, monkeypatch):
    """What a read-only mount does, for systems that do not let a test mount anything."""
    real = os.mkdir

    def refuse(path, *words, **named):
        if str(path).startswith(str(place.there)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, *words, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", refuse)
        outcome = place.convert(repobuild_cli)
    evidence = f"{place.repository}.repobuild/.staging: Read-only file system"
    expect(outcome, 7, "permission-denied", evidence, "not mounted read-only")


def test_a_port_that_is_taken_is_told(place):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["serve", place.repository, "--http-port", port, "--metrics-port", "0"]
        outcome = run([sys.executable, "-m", "repobuild", *words])
    expect(outcome, 7, "port-unavailable", "address already in use", "--http-port (0 takes a free one)")


def begun(before):
    """Children of this process that were not there before; other tests' servers may still run."""
    return [p for p in psutil.Process().children() if p not in before]


def serving_process():
    """The bundled server of the build that runs in this process, the youngest one."""
    servers = [p for p in psutil.Process().children() if "repobuild_serve" in p.cmdline()]
    return max(servers, key=lambda process: process.create_time())


def kill_server():
    """Kill it and leave it to its parent to notice."""
    process = serving_process()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def dies_before_the_first_request(patch):
    real = pipeline.replay

    def killed(*words):
        kill_server()
        return real(*words)

    patch.setattr(pipeline, "replay", killed)


def dies_between_requests(patch):
    real, asked = tritonclient.http.InferenceServerClient.infer, []

    def killed(*words, **named):
        asked.append(words)
        if len(asked) == 5:
            kill_server()
        return real(*words, **named)

    patch.setattr(tritonclient.http.InferenceServerClient, "infer", killed)


def dies_over_a_request(patch):
    """The server is stopped, has the request in its hands, and is killed."""
    real, asked = tritonclient.http.InferenceServerClient.infer, []

    def killed(*words, **named):
        asked.append(words)
        if len(asked) == 5:
            server = serving_process()
            server.suspend()
            threading.Timer(0.3, server.kill).start()
        return real(*words, **named)

    patch.setattr(tritonclient.http.InferenceServerClient, "infer", killed)


def dies_over_many_requests(patch):
    """As above, with a request for each of 64 rows."""
    real, asked = tritonclient.http.aio.InferenceServerClient.infer, []

    async def killed(*words, **named):
        asked.append(words)
        if len(asked) == 1:
            server = serving_process()
            server.suspend()
            threading.Timer(0.3, server.kill).start()
        return await real(*words, **named)

    patch.setattr(tritonclient.http.aio.InferenceServerClient, "infer", killed)


def hangs(patch):
    """The server is stopped and never answers again."""
    real = pipeline.replay

    def suspended(*words):
        serving_process().suspend()
        return real(*words)

    patch.setattr(pipeline, "replay", suspended)
    patch.setattr("repobuild.verify.replay.TIMEOUT", 0.5)
    patch.setattr("repobuild.verify.server.STOP_SECONDS", 0.5)


class Never(BundledServer):
    """A server that sleeps before it opens its ports."""

    words = ("import time; print('loading'); time.sleep(600)",)

    def __init__(self, *given):
        super().__init__(*given, start_seconds=1.0)
        self._command = [sys.executable, "-u", "-c", *self.words]


class Ends(Never):
    """A server that ends before it opens its ports."""

    words = ("print('loading'); raise SystemExit(9)",)


VERIFICATION = {
    "dies before the first request": (dies_before_the_first_request, "server-died", "ready:", "not changed"),
    "dies between requests": (dies_between_requests, "server-died", "ready:", "not changed"),
    "dies over a request": (dies_over_a_request, "server-died", "ready:", "not changed"),
    "dies over many requests": (dies_over_many_requests, "server-died", "ready:", "not changed"),
    "hangs": (hangs, "server-refuses", "timed out", "not changed"),
    "never becomes ready": (
        lambda patch: patch.setattr(pipeline, "BundledServer", Never),
        "server-slow",
        "loading",
        "takes too long",
    ),
    "ends while it loads": (
        lambda patch: patch.setattr(pipeline, "BundledServer", Ends),
        "server-refused",
        "loading",
        "not changed",
    ),
}


@pytest.mark.parametrize(("fault", "code", "evidence", "hint"), VERIFICATION.values(), ids=VERIFICATION)
def test_a_server_that_fails_the_verification_is_told(
    repobuild_cli, place, monkeypatch, fault, code, evidence, hint
):
    before = psutil.Process().children()
    with monkeypatch.context() as patch:
        fault(patch)
        outcome = place.convert(repobuild_cli)
    expect(outcome, 8, code, evidence, hint)
    assert ("(signal 9)" in outcome.err) == (code == "server-died")
    assert begun(before) == []


MODELS = """
import numpy as np
from sklearn.linear_model import Ridge

class Noisy(Ridge):
    def predict(self, X):
        return super().predict(X) + np.random.default_rng().normal(size=len(X))

class Centred(Ridge):
    def predict(self, X):
        return super().predict(X - X.mean(0))
"""
CONVERTERS = """
import numpy as np
from odd_models import Centred, Noisy
from skl2onnx import update_registered_converter
from skl2onnx.algebra.onnx_ops import OnnxAdd, OnnxMatMul, OnnxReduceMean, OnnxSub
from skl2onnx.common.shape_calculator import calculate_linear_regressor_output_shapes

def convert(scope, operator, container):
    model, X, opset = operator.raw_operator, operator.inputs[0], container.target_opset
    weights, constant = (np.array(v, np.float32) for v in (model.coef_.reshape(-1, 1), [model.intercept_]))
    if isinstance(model, Centred):
        X = OnnxSub(X, OnnxReduceMean(X, axes=[0], keepdims=1, op_version=opset), op_version=opset)
    y = OnnxMatMul(X, weights, op_version=opset)
    OnnxAdd(y, constant, op_version=opset, output_names=operator.outputs[:1]).add_to(scope, container)

for kind in (Centred, Noisy):
    update_registered_converter(kind, kind.__name__, calculate_linear_regressor_output_shapes, convert)
"""


@pytest.fixture
def odd(place, monkeypatch):
    """Makes the project's model one of a module of its own: ``odd("Noisy")``."""
    (place.home / "odd_models.py").write_text(MODELS)
    (place.home / "odd_converters.py").write_text(CONVERTERS)
    monkeypatch.syspath_prepend(str(place.home))
    monkeypatch.setenv("PYTHONPATH", str(place.home))

    def make(name):
        module = importlib.import_module("odd_models")
        joblib.dump(getattr(module, name)().fit(ROWS, ROWS.sum(1)), place.home / "model.joblib")
        source = {"path": "model.joblib", "custom_ops": ["odd_converters"]}
        write_recipe(place.home, name="odd", source=source, inputs=[{"name": "X", "dtype": "FP32"}])

    yield make
    sys.modules.pop("odd_models", None)


def test_a_model_that_answers_differently_when_asked_again_is_told(repobuild_cli, place, odd):
    odd("Noisy")
    outcome = place.convert(repobuild_cli, "--trust", "module")
    evidence = "model repeats itself: asked twice, the model answers differently"
    expect(outcome, 4, "check-failed", evidence, "fix its random state")


def test_a_model_whose_answers_depend_on_the_other_rows_is_served_without_batches(repobuild_cli, place, odd):
    odd("Centred")
    repository, report = place.home / "repository", place.home / "report.json"
    words = ["--trust", "pickle", "--trust", "module", "--report", report]
    outcome = repobuild_cli("convert", place.home, "-r", repository, *words)
    assert outcome.status == 0, outcome.err
    [note] = json.loads(report.read_text())["notes"]
    assert note.startswith(
        "no batch dimension: an answer depends on the other rows (output 'prediction', row "
    )
    assert f"note: {note}" in outcome.err
    _, config = read_config(repository / "odd")
    assert config.max_batch_size == 0
    assert list(config.input[0].dims) == [-1, 3]
