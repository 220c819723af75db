"""Models of more than 2 GB, the most that one protobuf message holds: from weights to a served version."""

import json
import sys
import time

import numpy as np
import psutil
import pytest
import safetensors.torch
import torch

ROWS, WIDTH = 560_000, 1000
BYTES = 4 * ROWS * WIDTH
NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.table = nn.Embedding(rows, width)
        self.head = nn.Linear(width, 3)

    def forward(self, ids):
        return self.head(self.table(ids).mean(1))
"""


def private(process):
    """Bytes that a process and those that it started hold for themselves, pages of files included."""
    total = 0
    try:
        for member in (process, *process.children(recursive=True)):
            total += member.memory_full_info().uss
    except psutil.Error:
        return 0
    return total


def converted(home, recipe, repository):
    """Build, and say what it held at most."""
    command = [
        sys.executable,
        "-m",
        "repobuild",
        "convert",
        home / recipe,
        "-r",
        repository,
        "--trust",
        "module",
    ]
    most = 0
    with (home / "log").open("w") as log, psutil.Popen(command, stdout=log, stderr=log) as process:
        while process.poll() is None:
            most = max(most, private(process))
            time.sleep(0.05)
    assert process.returncode == 0, (home / "log").read_text()
    return most, (home / "log").read_text()


@pytest.fixture
def project(tmp_path):
    """An embedding table of 2.2 GB, rows of whose both ends are asked for, and its head."""
    home = tmp_path / "project"
    home.mkdir()
    (home / "net.py").write_text(NET)
    torch.manual_seed(0)
    weights = {
        "table.weight": torch.empty(ROWS, WIDTH).uniform_(-1, 1),
        "head.weight": torch.randn(3, WIDTH),
        "head.bias": torch.randn(3),
    }
    ids = np.random.default_rng(0).integers(0, ROWS, (6, 12))
    ids[0, :2] = 0, ROWS - 1
    with torch.no_grad():
        want = torch.nn.functional.linear(
            weights["table.weight"][torch.from_numpy(ids)].mean(1),
            weights["head.weight"],
            weights["head.bias"],
        ).numpy()
    safetensors.torch.save_file(weights, home / "weights.safetensors")
    np.savez(home / "samples.npz", ids=ids)
    module = {"file": "net.py", "class": "Net", "kwargs": {"rows": ROWS, "width": WIDTH}}
    sources = {
        "torch": {"path": "weights.safetensors", "module": module},
        "onnx": {"path": str(tmp_path / "repository" / "torch" / "1" / "model.onnx")},
    }
    for name, source in sources.items():
        recipe = {"name": name, "source": source, "samples": "samples.npz", "serving": {"max_batch_size": 8}}
        (home / f"{name}.yaml").write_text(json.dumps(recipe))
    return home, ids, want


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_model_past_two_gigabytes_is_built_from_weights_and_from_its_own_graph(project, tmp_path):
    """Each of the two is held once: PyTorch's packages come on top for the first."""
    import onnxruntime

    home, ids, want = project
    repository = tmp_path / "repository"
    for name, packages in (("torch", 0.6e9), ("onnx", 0.3e9)):
        most, said = converted(home, f"{name}.yaml", repository)
        assert "PASSED" in said
        assert most < 1.3 * BYTES + packages, f"{most / 1e9:.2f} GB for {BYTES / 1e9:.2f} GB of weights"
        version = repository / name / "1"
        assert (version / "model.onnx").stat().st_size < 1 << 20
        assert (version / "model.onnx.data").stat().st_size >= BYTES
        session = onnxruntime.InferenceSession(version / "model.onnx", providers=["CPUExecutionProvider"])
        (got,) = session.run(None, {"ids": ids})
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        del session
