"""Asks an ONNX file in ONNX Runtime on the CPU, one thread, so that sums come out in one order."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from repobuild.artifact import Artifact
from repobuild.errors import ConversionFailed, EnvironmentLacking, evidence
from repobuild.tensors import Array, Batch


def open_session(path: Path) -> Any:
    """Load an ONNX file.

    Returns:
        An ``onnxruntime.InferenceSession`` on the CPU provider with one thread.

    Raises:
        EnvironmentLacking: ONNX Runtime is not installed.
        ConversionFailed: ONNX Runtime refuses the file.
    """
    try:
        import onnxruntime
    except ImportError as problem:
        raise EnvironmentLacking(
            "onnxruntime-missing",
            "ONNX Runtime is not installed",
            evidence([str(problem)]),
            "pip install 'repobuild[cpu]', or 'repobuild[gpu]' on a machine with an NVIDIA GPU (never both)",
        ) from problem
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong is raised; the log would only repeat it on the terminal
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as problem:
        raise ConversionFailed(
            "runtime-refuses",
            "ONNX Runtime refuses to load the exported model",
            evidence([str(problem).replace(str(path), path.name).strip().splitlines()[0][:600]]),
            "the operator or type named above is not supported by this ONNX Runtime",
        ) from problem


class OnnxRuntimeRunner:
    """An ONNX file in a session.

    Args:
        path: The ONNX file.
    """

    def __init__(self, path: Path) -> None:
        self._session = open_session(path)
        self._names = [o.name for o in self._session.get_outputs()]

    @classmethod
    def of(cls, artifact: Artifact) -> Self:
        """See :meth:`repobuild.runners.interface.Runner.of`."""
        return cls(artifact.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def run(self, batch: Batch) -> dict[str, Array]:
        """See :meth:`repobuild.runners.interface.Runner.run`."""
        import numpy as np

        feeds = {
            name: array.astype(object) if array.dtype.kind == "U" else np.ascontiguousarray(array)
            for name, array in batch.items()
        }
        try:
            values = self._session.run(None, feeds)
        except Exception as problem:
            raise ConversionFailed(
                "runtime-failed",
                "ONNX Runtime fails on the samples",
                evidence([str(problem).strip().splitlines()[0][:600]]),
                "the operator named above does not accept these values",
            ) from problem
        return {name: np.asarray(value) for name, value in zip(self._names, values, strict=True)}
