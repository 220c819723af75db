"""Output shapes that ONNX infers, found in a process of their own.

ONNX Runtime merges inferred sizes into declared ones (core/graph, ``MergeShapeInfo``), and Triton compares
its configuration with the result. Inference is C++ over a file nobody vouched for, so it runs in a child that
may crash; the next file then gets a new one. This file is the child's program as well.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

LARGEST_FILE = 128 << 20
TIMEOUT_SECONDS = 120
MEMORY_BYTES = 8 << 30
LONGEST_ANSWER = 1 << 20


class ShapeInference:
    """Asks a child process for the output shapes of ONNX files; a context manager that ends the child."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def outputs(self, file: Path) -> dict[str, list[int] | None]:
        """Shapes of a graph's outputs as ONNX infers them: ``-1`` is free, ``None`` unknown.

        Args:
            file: An ONNX file of at most :data:`LARGEST_FILE` bytes.

        Returns:
            Shapes by output name; empty when inference fails.
        """
        try:
            answer = self._ask(os.fsencode(file.absolute()).hex())
        except (OSError, ValueError):
            answer = None
        if answer is None:
            self._end()
        return answer or {}

    def _ask(self, question: str) -> dict[str, list[int] | None] | None:
        child = self._child
        if child is None or child.poll() is not None:
            command = [sys.executable, "-P", __file__]
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            self._child = child
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(f"{question}\n".encode())
        child.stdin.flush()
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if len(line) > LONGEST_ANSWER or not selector.select(TIMEOUT_SECONDS):
                    return None
                piece = os.read(child.stdout.fileno(), 1 << 16)
                if not piece:
                    return None
                line += piece
        answer = json.loads(line)
        return answer if isinstance(answer, dict) else None

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # what was still to be written to the child is of no use any more
        child.wait()


def infer(file: bytes) -> dict[str, Any]:
    """``{output: shape}`` of a file; the child's part."""
    import onnx

    model = onnx.load(os.fsdecode(file), load_external_data=False)
    for value in model.graph.output:
        # Declared sizes are kept by the caller; inference begins from nothing, so that it never conflicts.
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    found: dict[str, Any] = {}
    for value in onnx.shape_inference.infer_shapes(model).graph.output:
        tensor = value.type.tensor_type
        found[value.name] = (
            [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
            if tensor.HasField("shape")
            else None
        )
    return found


def main() -> None:
    """Answer hexadecimal paths on standard input with a line of JSON each."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        try:
            answer = infer(bytes.fromhex(line.strip()))
        except Exception:  # noqa: BLE001 - a file that cannot be inferred has no inferred shapes
            answer = {}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
