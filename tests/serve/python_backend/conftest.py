"""Repositories of python models."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

HEAD = "import os\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n\n"
IDENTITY = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            tensors = [pb_utils.Tensor("OUT", tensor.as_numpy()) for tensor in request.inputs()]
            answers.append(pb_utils.InferenceResponse(tensors))
        return answers
"""


class Models:
    """Writes python models into a repository."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(
        self,
        name: str,
        code: str,
        *,
        wire: str = "INT32",
        dims: str = "1",
        batch: int = 8,
        extra: str = "",
        config: str | None = None,
    ) -> Path:
        """A model with one input IN and one output OUT; the folder of its version."""
        folder = self.path / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(HEAD + textwrap.dedent(code), encoding="utf-8")
        kind = "TYPE_STRING" if wire == "BYTES" else f"TYPE_{wire}"
        if config is None:
            config = (
                f"max_batch_size: {batch}\n"
                f'input [{{ name: "IN" data_type: {kind} dims: [ {dims} ] }}]\n'
                f'output [{{ name: "OUT" data_type: {kind} dims: [ {dims} ] }}]\n'
                "instance_group [{ kind: KIND_CPU }]\n"
            )
        (folder.parent / "config.pbtxt").write_text(f'backend: "python"\n{config}{extra}', encoding="utf-8")
        return folder


@pytest.fixture
def models(repository) -> Models:
    """Writes into the test's own repository."""
    return Models(repository.path)


def alive(pid: int) -> bool:
    """Whether a process runs, and is no zombie that nobody waits for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait for something that is bound to happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def processes() -> tuple[Callable[[int], bool], Callable[..., None]]:
    """``alive`` and ``wait_until``, which test modules cannot import."""
    return alive, wait_until


@pytest.fixture
def one() -> Callable[..., dict]:
    """Makes the body of a request with one INT32."""

    def make(value: int = 5, **more: object) -> dict:
        return {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [value]}], **more}

    return make


@pytest.fixture
def identity() -> str:
    """The code of a model that gives back its input."""
    return IDENTITY
