"""Runs the command line on one hostile file and measures what it did."""

import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

TERMINAL = {chr(c) for c in (*range(9), *range(11, 32), 0x7F, *range(0x80, 0xA0), 0x202E, 0x2066)}


OTHERS = ("said", "scratch/.ses")
"""What this test writes, and what onnxruntime writes into the temporary folder when it is imported."""


@dataclass(frozen=True)
class Ended:
    """How the command line ended.

    Attributes:
        status: Exit status.
        said: Everything it printed.
        peak: The most memory that it, or a process that it waited for, held; bytes.
    """

    status: int
    said: str
    peak: int


@pytest.fixture
def refused(tmp_path, tree):
    """Convert a hostile file without trust; checks what must hold for all, and answers how it ended.

    ``refused(make, kind=...)``: nothing ran, nothing lies anywhere, and there is neither a traceback nor
    anything in the message that a terminal would obey.
    """

    def run(make, *words, kind=None, name="model.joblib"):
        home, scratch = tmp_path / "home", tmp_path / "scratch"
        for folder in (home, scratch):
            folder.mkdir()
        canary = tmp_path / "canary"
        (home / name).write_bytes(make(canary))
        np.save(home / "rows.npy", np.zeros((4, 2), np.float32))
        source = f"{{path: {name}{f', kind: {kind}' if kind else ''}}}"
        (home / "recipe.yaml").write_text(f"name: m\nsource: {source}\nsamples: rows.npy\n")
        before = {path: len(data) for path, data in tree(tmp_path).items()}
        with (tmp_path / "said").open("w+b") as said:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "repobuild",
                    "convert",
                    "recipe.yaml",
                    "--repository",
                    "models",
                    *words,
                ],
                cwd=home,
                stdout=said,
                stderr=said,
                env={**os.environ, "TMPDIR": str(scratch), "COLUMNS": "120"},
            )
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            text = said.read().decode("utf-8", "replace")
        ended = Ended(process.returncode, text, used.ru_maxrss << 10)
        assert not canary.exists(), f"it ran: {text}"
        left = {path: len(data) for path, data in tree(tmp_path).items() if path not in OTHERS}
        assert left == before, "something was written"
        assert "Traceback" not in text
        assert not TERMINAL & set(text.replace("\n", "")), ascii(text)
        assert "error[" in text
        return ended

    return run
