"""Fixtures that every test may use: small trained models, recipes for them, and the command line."""

from __future__ import annotations

import json
import signal
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
