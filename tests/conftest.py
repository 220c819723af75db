"""Fixtures that every test may use: small trained models, recipes for them, and the command line."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Outcome:
    """What a run of the command line gave."""

    status: int
    out: str
    err: str


@pytest.fixture
def repobuild_cli(capsys):
    """Runs the command line in this process: ``repobuild_cli("convert", path, ...)``."""
    from repobuild.cli import main

    before = signal.getsignal(signal.SIGTERM)

    def run(*words: object) -> Outcome:
        capsys.readouterr()
        status = main([str(w) for w in words])
        printed = capsys.readouterr()
        return Outcome(status, printed.out, printed.err)

    yield run
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def project(tmp_path):
    """Makes a folder with a model, samples and a recipe: ``project(estimator, X, max_batch_size=8)``."""

    def make(
        estimator: Any, samples: Any, *, folder: str = "project", compress: Any = 0, **recipe: Any
    ) -> Path:
        import joblib
        import numpy as np

        home = tmp_path / folder
        home.mkdir(exist_ok=True)
        joblib.dump(estimator, home / "model.joblib", compress=compress)
        np.save(home / "samples.npy", samples)
        document = {
            "name": "model",
            "source": {"path": "model.joblib"},
            "samples": "samples.npy",
            "serving": {"max_batch_size": 8},
            **recipe,
        }
        (home / "recipe.yaml").write_text(json.dumps(document, indent=1))
        return home

    return make


@pytest.fixture
def risk_project(project):
    """The lesson's model: two inputs in 0..10, the probability that they add up to more than 10."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    rng = np.random.RandomState(0)
    rows = rng.uniform(0, 10, (200, 2))
    labels = (rows[:, 0] + rows[:, 1] > 10).astype(int)
    return project(
        LogisticRegression().fit(rows, labels),
        rows,
        name="risk_model",
        inputs=[{"name": "INPUT0", "dtype": "FP32", "dims": [2]}],
        outputs=[{"name": "OUTPUT0", "from": "probabilities[:, 1:2]"}],
        serving={"max_batch_size": 32, "dynamic_batching": {"max_queue_delay_microseconds": 5000}},
    )


@pytest.fixture
def tree():
    """Every file below a folder with its bytes: ``tree(folder) == {relative path: bytes}``."""

    def read(folder: Path) -> dict[str, bytes]:
        return {
            p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
        }

    return read


@dataclass(frozen=True)
class Served:
    """A repository behind a running server."""

    address: str

    def infer(self, model: str, tensor: dict[str, Any]) -> dict[str, Any]:
        """The answer to one JSON request with one input."""
        body = json.dumps({"inputs": [tensor]}).encode()
        with urllib.request.urlopen(f"{self.address}/v2/models/{model}/infer", body, timeout=30) as reply:
            return json.load(reply)

    def statistics(self, model: str) -> dict[str, Any]:
        """The model's statistics."""
        with urllib.request.urlopen(f"{self.address}/v2/models/{model}/stats", timeout=30) as reply:
            return json.load(reply)["model_stats"][0]


@pytest.fixture
def served(tmp_path):
    """Serves a repository for the length of a block: ``with served(repository) as server: ...``.

    ``repobuild serve`` runs on an ephemeral port of 127.0.0.1 and is stopped by its own process id.
    """

    @contextlib.contextmanager
    def run(repository: Path, *words: str):
        ports = tmp_path / f"ports-{time.monotonic_ns()}.json"
        command = [sys.executable, "-m", "repobuild", "serve", str(repository), "--http-port", "0"]
        command += ["--grpc-port", "0", "--metrics-port", "0", "--port-file", str(ports), *words]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            while not ports.exists():
                assert server.poll() is None, server.stderr.read()
                time.sleep(0.02)
            yield Served(f"http://127.0.0.1:{json.loads(ports.read_text())['http']}")
        finally:
            server.terminate()
            said = server.communicate(timeout=60)[1]
        assert server.returncode == 0, said

    return run
