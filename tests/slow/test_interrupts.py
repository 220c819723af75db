"""Builds interrupted in every step and at moments spread over their run: what they say and leave."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

import joblib
import numpy as np
import psutil
import pytest
from sklearn.linear_model import Ridge

STEPS = ("load", "export", "refine", "compile", "check", "stage", "verify", "publish")
MARK = "REPOBUILD_TEST_ROUND"
TOLD = "interrupted; nothing half written was left"
ROWS = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
OLD, NEW = Ridge().fit(ROWS, ROWS.sum(1)), Ridge().fit(ROWS, -5 * ROWS.sum(1))
ROUNDS = 12
NUMBERS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Round:
    """One build: a process, what it has said, and when it came to each step."""

    process: subprocess.Popen
    lines: list[str] = field(default_factory=list)
    reached: dict[str, float] = field(default_factory=dict)

    def listen(self):
        """Read what it says."""
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("  "):
                self.reached[line.split()[0]] = time.monotonic()

    def steps(self):
        """The steps that have been told of."""
        return [line.split()[0] for line in self.lines if line.startswith("  ")]

    def noise(self):
        """What a user would be puzzled by; the empty line keeps a terminal's ^C apart from what follows."""
        return [line for line in self.lines if line and not line.startswith("  ") and line != TOLD]


@pytest.fixture
def scene(project, tmp_path):
    """A project whose model is newer than the version in the repository."""
    home = project(OLD, ROWS, budget={"p99_ms": 60_000})
    command = [sys.executable, "-m", "repobuild", "convert", home, "-r", tmp_path / "there" / "repository"]
    command += ["--trust", "pickle", "--progress", "plain"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    joblib.dump(NEW, home / "model.joblib")
    return command


def marked(mark):
    """Processes that bear the mark in their environment, or are at home in the folder or named with it."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark or any(
                mark in word for word in [*process.cmdline(), process.cwd()]
            ):
                found.append(process.cmdline())
        except psutil.Error:
            continue
    return found


@pytest.fixture(autouse=True)
def hearing():
    """Children inherit deafness to SIGINT, which a shell gives to what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(command, folder, number, moment):
    """Start a build, send it a signal when ``moment(round)`` says so, and wait for its end."""
    environment = {**os.environ, "TMPDIR": str(folder / "temporary"), MARK: str(folder)}
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    with process:
        this = Round(process)
        reader = threading.Thread(target=this.listen)
        reader.start()
        while not moment(this) and process.poll() is None:
            time.sleep(0.002)
        process.send_signal(number)
        process.wait(60)
        reader.join(60)
    return this


def after(step):
    """The moment when a step has been told of."""
    return lambda this: step in this.steps()


def everything(folder):
    """All that lies below a folder, with contents."""
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")
    }


def begun(state):
    """Whether a build has its staging folder."""
    return any((state / ".staging").glob("*"))


def judge(this, folder, before, whole):
    """Nothing is left of an interrupted build, and a finished one is whole."""
    for _ in range(300):
        if not marked(str(folder)):
            break
        time.sleep(0.1)
    assert marked(str(folder)) == []
    assert list((folder / "temporary").iterdir()) == []
    assert this.noise() == []
    status = this.process.returncode
    if status == 0:
        assert this.steps() == list(STEPS)
        assert everything(folder / "there") == whole
    else:
        assert (status, this.lines[-1]) == (130, TOLD)
        after_all = everything(folder / "there")
        assert after_all == before or (after_all == whole and "verify" in this.steps())


@pytest.fixture
def rounds(scene, tmp_path):
    """Interrupts builds of one scene, each from the same beginning, and judges what came of them."""
    import shutil

    there, kept = tmp_path / "there", tmp_path / "kept"
    (tmp_path / "temporary").mkdir()
    shutil.copytree(there, kept)
    subprocess.run(scene, check=True, capture_output=True, timeout=120)
    before, whole = everything(kept), everything(there)
    assert "repository/model/2/model.onnx" in whole.keys() - before.keys()

    def play(number, moment):
        shutil.rmtree(there)
        shutil.copytree(kept, there)
        this = interrupted(scene, tmp_path, number, moment)
        judge(this, tmp_path, before, whole)
        return this

    return play


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_interrupt_after_each_step_leaves_the_repository_as_it_was(rounds):
    statuses = {
        step: [rounds(number, after(step)).process.returncode for number in NUMBERS] for step in STEPS
    }
    assert all(statuses[step] == [130, 130] for step in STEPS[:-2]), statuses
    assert set(statuses["verify"]) <= {0, 130}
    assert set(statuses["publish"]) <= {0, 130}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_interrupts_at_any_time_leave_the_repository_as_it_was_or_whole(rounds, tmp_path):
    """Half of them come at any time, and half while the bundled server is asked."""
    chance = random.Random(7)
    state = tmp_path / "there" / "repository.repobuild"

    def spread(begins):
        """The moment between what begins and the last line, somewhere."""
        share, started = chance.random(), []

        def moment(this):
            if not started and begins(this):
                started.append(time.monotonic())
            return bool(started) and time.monotonic() - started[0] >= share * lengths[begins]

        return moment

    def work(_):
        return begun(state)

    stage = after("stage")
    began = []
    probe = rounds(signal.SIGINT, lambda _: began.extend([time.monotonic()] * (begun(state) and not began)))
    assert probe.process.returncode == 0
    lengths = {
        work: probe.reached["publish"] - began[0],
        stage: probe.reached["publish"] - probe.reached["stage"],
    }
    played = [rounds(NUMBERS[i // 2 % 2], spread((work, stage)[i % 2])) for i in range(ROUNDS)]
    statuses = [this.process.returncode for this in played]
    assert set(statuses) <= {0, 130}
    assert statuses.count(130) >= ROUNDS // 2, statuses
