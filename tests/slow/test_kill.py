"""Builds killed with SIGKILL at moments spread over their run, and what is served afterwards."""

import os
import signal
import subprocess
import sys
import time

import joblib
import numpy as np
import psutil
import pytest
from sklearn.linear_model import Ridge

ROUNDS = 30
ROWS = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
OLD, NEW = Ridge().fit(ROWS, ROWS.sum(1)), Ridge().fit(ROWS, -5 * ROWS.sum(1))


def command(home, repository):
    return [sys.executable, "-m", "repobuild", "convert", home, "-r", repository, "--trust", "pickle", "-q"]


@pytest.fixture
def answer(served):
    """What the model answers to the first row, served from the repository as it is; its version too."""

    def ask(repository):
        with served(repository) as server:
            row = ROWS[0].tolist()
            document = server.infer("model", {"name": "X", "shape": [1, 3], "datatype": "FP32", "data": row})
        return document["model_version"], document["outputs"][0]["data"][0]

    return ask


def orphans(folder):
    """Processes that have the folder in their command line or are at home in it."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(folder) in word for word in [*process.cmdline(), process.cwd()]):
                found.append(process.cmdline())
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_thirty_kills_spread_over_the_run(project, tmp_path, answer):
    home = project(OLD, ROWS)
    repository = tmp_path / "repository"
    subprocess.run(command(home, repository), check=True, capture_output=True, timeout=120)
    old = ("1", pytest.approx(float(OLD.predict(ROWS[:1])[0]), abs=1e-4))
    want = float(NEW.predict(ROWS[:1])[0])
    assert answer(repository) == old
    joblib.dump(NEW, home / "model.joblib")
    probe = tmp_path / "probe" / "repository"
    started = time.monotonic()
    subprocess.run(command(home, probe), check=True, capture_output=True, timeout=120)
    length = time.monotonic() - started
    seen = []
    version = 1
    for number in range(ROUNDS):
        joblib.dump(NEW if number % 2 == 0 else OLD, home / "model.joblib")
        build = subprocess.Popen(
            command(home, repository), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(length * 1.1 * (number + 0.5) / ROUNDS)
        os.kill(build.pid, signal.SIGKILL)
        build.wait()
        served, value = answer(repository)
        fresh = want if number % 2 == 0 else old[1]
        if int(served) > version:
            assert value == pytest.approx(fresh, abs=1e-4) if number % 2 == 0 else value == fresh
            version = int(served)
        else:
            assert int(served) == version
        seen.append((build.returncode, served))
        subprocess.run(command(home, repository), check=True, capture_output=True, timeout=120)
        served, value = answer(repository)
        assert value == (pytest.approx(want, abs=1e-4) if number % 2 == 0 else old[1])
        version = int(served)
        state = tmp_path / "repository.repobuild"
        assert sorted(p.name for p in state.iterdir() if p.name.startswith(".")) == [".lock"]
        assert all(
            p.name in {"config.pbtxt", "warmup"} or p.name.isdigit() for p in (repository / "model").iterdir()
        )
    assert sum(code == -signal.SIGKILL for code, _ in seen) >= ROUNDS // 2, seen
    for _ in range(200):
        if not orphans(tmp_path):
            break
        time.sleep(0.1)
    assert orphans(tmp_path) == []
