"""Sessions of ONNX Runtime on the CPU, one thread, so that sums come out in one order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repobuild.errors import ConversionFailed, EnvironmentLacking, InputInvalid, evidence
from repobuild.tensors import Array, Batch

SHOWN = 600


def open_session(path: Path, libraries: Sequence[str] = ()) -> Any:
    """Load an ONNX file.

    Args:
        path: The file.
        libraries: Libraries of custom operators; their code runs in this process.

    Returns:
        An ``onnxruntime.InferenceSession`` on the CPU provider with one thread.

    Raises:
        EnvironmentLacking: ONNX Runtime is not installed.
        InputInvalid: A library cannot be used.
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
    register(options, libraries)
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as problem:
        raise ConversionFailed(
            "runtime-refuses",
            "ONNX Runtime refuses to load the exported model",
            evidence([str(problem).replace(str(path), path.name).strip().splitlines()[0][:SHOWN]]),
            "the operator or type named above is not supported by this ONNX Runtime",
        ) from problem


def register(options: Any, libraries: Sequence[str]) -> None:
    """Register the operators of libraries with a session's options.

    Args:
        options: ``onnxruntime.SessionOptions``.
        libraries: Paths of the libraries.

    Raises:
        InputInvalid: The dynamic linker refuses one, or it is no library of operators.
    """
    for library in libraries:
        path = Path(library)
        try:
            options.register_custom_ops_library(library)
        except Exception as problem:
            raise InputInvalid(
                "library-unusable",
                f"ONNX Runtime cannot use the library {path.name}",
                evidence([str(problem).replace(library, path.name).strip().splitlines()[0][:SHOWN]]),
                "it must be a shared library for this machine that exports RegisterCustomOps; what it needs"
                " itself is looked for in LD_LIBRARY_PATH",
            ) from problem


def run_session(session: Any, batch: Batch) -> dict[str, Array]:
    """Answer a batch, as :meth:`repobuild.runners.interface.Runnable.run` does.

    Args:
        session: What :func:`open_session` gave.
        batch: One array an input.

    Raises:
        ConversionFailed: ONNX Runtime fails on the batch.
    """
    import numpy as np

    feeds = {
        name: array.astype(object) if array.dtype.kind == "U" else np.ascontiguousarray(array)
        for name, array in batch.items()
    }
    names = [o.name for o in session.get_outputs()]
    try:
        values = session.run(None, feeds)
    except Exception as problem:
        raise runtime_failed(str(problem).strip().splitlines()[0][:SHOWN]) from problem
    return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}


def output_shapes(session: Any) -> dict[str, list[int | None]]:
    """The shape of each output as ONNX Runtime derives it when it loads a graph; ``None`` for a free axis.

    Triton compares these with the configuration, not what the file declares. There is no entry for an output
    of unknown rank, which ONNX Runtime does not tell from a scalar.

    Args:
        session: What :func:`open_session` gave.
    """
    return {
        o.name: [d if isinstance(d, int) and d > 0 else None for d in o.shape]
        for o in session.get_outputs()
        if o.shape
    }


def runtime_failed(told: str) -> ConversionFailed:
    """The error for a batch that ONNX Runtime does not answer."""
    return ConversionFailed(
        "runtime-failed",
        "ONNX Runtime fails on the samples",
        evidence([told]),
        "the operator named above does not accept these values",
    )
