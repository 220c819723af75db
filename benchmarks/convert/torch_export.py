"""Time and memory of a conversion against a bare ``torch.onnx.export`` of the same module.

    python benchmarks/convert/torch_export.py [--layers 4] [--width 2048] [--rounds 3]

Each round runs both in turn, each in a process of its own. The bare one imports PyTorch, makes the
module, loads its weights and exports it with the same dynamic batch. The other is a whole
conversion; the time of what checks (asking the model, running graphs, optimising, the bundled
server) is measured inside it and told apart. Memory is the peak of the private memory of a process
and all that it started, sampled every 20 ms, as a ratio to the bytes of the weights; what importing
PyTorch takes is measured without a module and taken off both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np
import psutil

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.body = nn.Sequential(*[
            m for _ in range(layers) for m in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())
        ])

    def forward(self, x):
        return self.body(x)
"""

BARE = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from net import Net
layers, width = int(sys.argv[2]), int(sys.argv[3])
module = Net(layers, width)
module.load_state_dict(torch.load(sys.argv[1] + "/weights.pt", weights_only=True, mmap=True), assign=True)
module.eval()
x = torch.zeros(2, width)
torch.onnx.export(
    module, (x,), sys.argv[1] + "/bare.onnx", dynamo=True, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
    input_names=["x"], output_names=["output"], external_data=True, verbose=False,
)
"""

EMPTY = "import torch, onnxscript, torch.onnx"

WHOLE = """
import json, sys, time
from pathlib import Path
from repobuild.build import Order
from repobuild.recipe.load import load_recipe
from repobuild.sources.interface import Trust
from repobuild.sources.tensors_in_child import TensorsInChild
from repobuild.runners.onnxruntime import OnnxRuntimeRunner
from repobuild import pipeline

spent = {}

def timed(owner, name, key):
    inner = getattr(owner, name)
    def call(*args, **named):
        start = time.perf_counter()
        try:
            return inner(*args, **named)
        finally:
            spent[key] = spent.get(key, 0.0) + time.perf_counter() - start
    setattr(owner, name, call)

timed(TensorsInChild, "ask", "asking")
timed(TensorsInChild, "try_graph", "running")
timed(OnnxRuntimeRunner, "__init__", "running")
timed(OnnxRuntimeRunner, "run", "running")
for name in ("refine_graph", "check", "verify"):
    timed(pipeline, name, name)
start = time.perf_counter()
pipeline.convert(Order(load_recipe(Path(sys.argv[1])), Path(sys.argv[2]), Trust(frozenset({"module"}))))
inside = ("refine_graph", "check", "verify")
outer = sum(spent.get(k, 0.0) for k in inside)
print(json.dumps({"whole": time.perf_counter() - start, **spent}))
"""


def main() -> None:
    """Run the rounds, and print the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="repobuild-bench-") as folder:
        home = Path(folder)
        weights = prepare(home, chosen.layers, chosen.width)
        words = [str(home), str(chosen.layers), str(chosen.width)]
        empty = peak([sys.executable, "-c", EMPTY])[1]
        rounds = []
        for number in range(chosen.rounds):
            bare_seconds, bare_bytes, _ = peak([sys.executable, "-W", "ignore", "-c", BARE, *words])
            repository = home / f"repository{number}"
            whole_seconds, whole_bytes, said = peak(
                [sys.executable, "-c", WHOLE, str(home / "recipe.yaml"), str(repository)]
            )
            parts = json.loads(said.strip().splitlines()[-1])
            checks = sum(v for k, v in parts.items() if k != "whole")
            rounds.append((bare_seconds, whole_seconds, checks, bare_bytes - empty, whole_bytes - empty))
            print(f"round {number + 1}: bare {bare_seconds:.1f} s, whole {whole_seconds:.1f} s", parts)
        bare, whole, checks, bare_memory, memory = (statistics.median(r) for r in zip(*rounds, strict=True))
        print(
            textwrap.dedent(f"""\
            weights {weights / 1e6:.0f} MB; medians of {chosen.rounds} rounds
            bare torch.onnx.export   {bare:6.1f} s   {bare_memory / weights:.2f}x the weights
            conversion, all of it    {whole:6.1f} s   {memory / weights:.2f}x the weights
            beyond the checks        {whole - checks:6.1f} s   {(whole - checks) / bare:.2f}x bare""")
        )


def prepare(home: Path, layers: int, width: int) -> int:
    """Write module, weights, samples and recipe; the bytes of the weights."""
    (home / "net.py").write_text(NET)
    make = (
        "import sys, torch; sys.path.insert(0, sys.argv[1]); from net import Net; torch.manual_seed(0);"
        "torch.save(Net(int(sys.argv[2]), int(sys.argv[3])).state_dict(), sys.argv[1] + '/weights.pt')"
    )
    subprocess.run([sys.executable, "-c", make, str(home), str(layers), str(width)], check=True)
    rng = np.random.default_rng(0)
    np.savez(home / "samples.npz", x=rng.standard_normal((8, width)).astype(np.float32))
    recipe = {
        "name": "model",
        "source": {
            "path": "weights.pt",
            "kind": "torch",
            "module": {"file": "net.py", "class": "Net", "kwargs": {"layers": layers, "width": width}},
        },
        "samples": "samples.npz",
        "serving": {"max_batch_size": 8},
    }
    (home / "recipe.yaml").write_text(json.dumps(recipe))
    return (home / "weights.pt").stat().st_size


def peak(command: list[str]) -> tuple[float, int, str]:
    """Run a command; seconds, peak of private bytes of its processes, and what it printed."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        process = psutil.Popen(command, stdout=out)
        most = 0
        while process.poll() is None:
            most = max(most, private(process))
            time.sleep(0.02)
        if process.returncode:
            raise SystemExit(f"{command[:3]} ended with status {process.returncode}")
        out.seek(0)
        return time.perf_counter() - start, most, out.read()


def private(process: psutil.Process) -> int:
    """Bytes that a process and its descendants hold for themselves alone."""
    total = 0
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for member in family:
        try:
            total += member.memory_full_info().uss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


if __name__ == "__main__":
    main()
