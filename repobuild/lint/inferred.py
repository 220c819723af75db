"""Output shapes that ONNX infers, found in a process of their own.

ONNX Runtime merges inferred sizes into declared ones (core/graph, ``MergeShapeInfo``), and Triton compares
its configuration with the result. Inference is C++ over a file nobody vouched for, so it runs in a child that
may crash. The same file is the child's program.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LARGEST_FILE = 128 << 20
TIMEOUT_SECONDS = 120
MEMORY_BYTES = 8 << 30


def infer_outputs(file: Path) -> dict[str, list[int] | None]:
    """Shapes of a graph's outputs as ONNX infers them: ``-1`` is free, ``None`` unknown.

    Args:
        file: An ONNX file of at most :data:`LARGEST_FILE` bytes.

    Returns:
        Shapes by output name; empty when inference fails.
    """
    command = [sys.executable, "-P", __file__, str(file)]
    try:
        run = subprocess.run(command, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
        answer = json.loads(run.stdout) if run.returncode == 0 else {}
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
    return answer if isinstance(answer, dict) else {}


def main(file: str) -> None:
    """Print ``{output: shape}`` of a file as JSON."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import onnx

    model = onnx.load(file, load_external_data=False)
    for value in model.graph.output:
        # Declared sizes are kept by the caller; inference begins from nothing, so that it never conflicts.
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    graph = onnx.shape_inference.infer_shapes(model).graph
    found = {}
    for value in graph.output:
        tensor = value.type.tensor_type
        found[value.name] = (
            [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
            if tensor.HasField("shape")
            else None
        )
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
