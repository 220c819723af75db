"""Asks an ONNX file in ONNX Runtime on the CPU, one thread, so that sums come out in one order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from repobuild.artifact import Artifact, Library
from repobuild.runners.child import RunnerChild
from repobuild.tensors import Batch
from repobuild.worker.onnx_session import open_session, output_shapes, run_session, runtime_failed


class OnnxRuntimeRunner:
    """An ONNX file in a session; one with custom operators in a child process, which alone loads libraries.

    Without libraries there is nothing to close. :attr:`shapes` has what
    :func:`repobuild.worker.onnx_session.output_shapes` tells.

    Args:
        path: The ONNX file.
        libraries: What it takes its custom operators from.

    Raises:
        InputInvalid: A library cannot be used.
        ConversionFailed: ONNX Runtime refuses the file.
        EnvironmentLacking: ONNX Runtime is not installed, or the child process does not start or crashes.
    """

    def __init__(self, path: Path, libraries: Sequence[Library] = ()) -> None:
        self._child: RunnerChild | None = None
        self._session: Any = None
        if libraries:
            self._child = RunnerChild(path, "open_graph", libraries=[str(one.path) for one in libraries])
            shapes = self._child.told["shapes"]
        else:
            self._session = open_session(path)
            shapes = output_shapes(self._session)
        self.shapes: dict[str, tuple[int | None, ...]] = {name: tuple(dims) for name, dims in shapes.items()}

    @classmethod
    def of(cls, artifact: Artifact) -> Self:
        """See :meth:`repobuild.runners.interface.Runner.of`."""
        return cls(artifact.path, artifact.libraries)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            self._child.close()

    def run(self, batch: Batch) -> Batch:
        """See :meth:`repobuild.runners.interface.Runner.run`."""
        if self._child is None:
            return run_session(self._session, batch)
        (found,) = self._child.exchange("ask_graph", [batch])
        if isinstance(found, str):
            raise runtime_failed(found)
        return found
