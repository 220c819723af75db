"""Runs the command line on one hostile file, and checks what must hold for all of them."""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass

import numpy as np
import pytest

TERMINAL = {chr(c) for c in (*range(9), *range(11, 32), 0x7F, *range(0x80, 0xA0), 0x202E, 0x2066)}
OTHERS = ("said", "peak", "scratch/.ses")
"""What this test writes, and what onnxruntime writes into the temporary folder when it is imported."""


MEASURED = """
import os, resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
with open(sys.argv[1], "w") as told:
    told.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
os._exit(status if status >= 0 else 128 - status)
"""
"""Runs a command and writes down its peak memory in KiB.

On Linux ru_maxrss counts what the parent held when a process was forked, so the parent must be small.
"""


@dataclass(frozen=True)
class Ended:
    """How the command line ended.

    Attributes:
        status: Exit status.
        said: Everything it printed.
        peak: The most memory that it held, in bytes; 0 where it ran inside the test's own process.
    """

    status: int
    said: str
    peak: int = 0


@pytest.fixture
def hostile_project(tmp_path, tree):
    """A project around a hostile file: ``hostile_project(make, run, ...)`` runs it and looks at what is left.

    Nothing of the file may have run, nothing may lie anywhere that did not lie there before, and there may be
    neither a traceback nor anything in the message that a terminal would obey.
    """

    def run_in(make, run, kind=None, name="model.joblib"):
        home, scratch = tmp_path / "home", tmp_path / "scratch"
        for folder in (home, scratch):
            folder.mkdir()
        canary = tmp_path / "canary"
        (home / name).write_bytes(make(canary))
        np.save(home / "rows.npy", np.zeros((4, 2), np.float32))
        source = f"{{path: {name}{f', kind: {kind}' if kind else ''}}}"
        (home / "recipe.yaml").write_text(f"name: m\nsource: {source}\nsamples: rows.npy\n")
        before = {path: len(data) for path, data in tree(tmp_path).items()}
        ended = run(home, scratch)
        assert not canary.exists(), f"it ran: {ended.said}"
        left = {path: len(data) for path, data in tree(tmp_path).items() if path not in OTHERS}
        assert left == before, "something was written"
        assert "Traceback" not in ended.said
        assert not TERMINAL & set(ended.said.replace("\n", "")), ascii(ended.said)
        assert "error[" in ended.said
        return ended

    return run_in


@pytest.fixture
def refused(hostile_project, repobuild_cli, monkeypatch):
    """Convert a hostile file, by default without trust: ``refused(make, *words, kind=..., name=...)``."""

    def convert(make, *words, **file):
        def run(home, scratch):
            monkeypatch.chdir(home)
            monkeypatch.setenv("TMPDIR", str(scratch))
            monkeypatch.setattr(tempfile, "tempdir", str(scratch))
            outcome = repobuild_cli("convert", "recipe.yaml", "--repository", "models", *words)
            return Ended(outcome.status, outcome.out + outcome.err)

        return hostile_project(make, run, **file)

    return convert


@pytest.fixture
def refused_apart(hostile_project, tmp_path):
    """The same in a process of its own, whose memory is measured."""

    def convert(make):
        def run(home, scratch):
            with (tmp_path / "said").open("w+b") as said:
                words = ["-m", "repobuild", "convert", "recipe.yaml", "--repository", "models"]
                status = subprocess.call(
                    [sys.executable, "-c", MEASURED, tmp_path / "peak", sys.executable, *words],
                    cwd=home,
                    stdout=said,
                    stderr=said,
                    env={**os.environ, "TMPDIR": str(scratch)},
                )
                said.seek(0)
                text = said.read().decode("utf-8", "replace")
            return Ended(status, text, int((tmp_path / "peak").read_text()) << 10)

        return hostile_project(make, run)

    return convert
