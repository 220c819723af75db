"""Loads a float16 graph in a process of its own, and finds the nodes on which ONNX Runtime crashes.

``python -m repobuild.transforms.probe FILE`` loads one file at the levels of optimisation that fuse.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from repobuild.transforms.halving import CRASHES, Plan

LEVELS = ("ORT_ENABLE_ALL", "ORT_ENABLE_EXTENDED")
CULPRITS = 4
"""How many nodes are looked for at most."""


def crashes(model: Path) -> bool:
    """Whether a process that loads an ONNX file ends by a signal. A file that is refused does not count."""
    command = [sys.executable, "-P", "-m", "repobuild.transforms.probe", str(model)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode < 0


def keep_culprits(plan: Plan, write: Callable[[], None], crashing: Callable[[], bool]) -> None:
    """Leave in float32, by name, the nodes whose float16 form makes ONNX Runtime crash.

    Among the graphs of which the first nodes alone are float16, the one is searched by bisection at which
    crashes begin. If there are more such nodes than :data:`CULPRITS`, the graph crashes still.

    Args:
        plan: What is float16; of it, the graph has been written.
        write: Writes the graph of the plan.
        crashing: Whether what was written crashes.
    """
    for _ in range(CULPRITS):
        if not plan.halves or not crashing():
            return
        whole = dict(sorted(plan.halves.items()))
        keys = list(whole)
        low, high = 0, len(keys)
        while high - low > 1:
            middle = (low + high) // 2
            plan.halves = {key: whole[key] for key in keys[:middle]}
            write()
            if crashing():
                high = middle
            else:
                low = middle
        plan.halves = whole
        plan.keep(keys[high - 1], "crashes begin with it in float16", CRASHES)
        write()


def main() -> None:
    """Load the file that the command line names."""
    import onnxruntime

    for level in LEVELS:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    main()
