"""ONNX Runtime sessions of graphs in memory, whose weights may lie on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from repobuild.errors import ConversionFailed, EnvironmentLacking, evidence
from repobuild.tensors import Array, Batch
from repobuild.transforms.files import GraphFile, serialized

if TYPE_CHECKING:
    from onnx import ModelProto

FOLDER_KEY = "session.model_external_initializers_file_folder_path"
"""Where a graph that is loaded from memory finds its data files
(onnxruntime/core/session/onnxruntime_session_options_config_keys.h)."""


def open_graph(proto: ModelProto, source: GraphFile) -> Any:
    """Load a changed graph as it is written, without ONNX Runtime's optimisation, one thread, on the CPU.

    Args:
        proto: The graph.
        source: The file that its weights lie in.

    Raises:
        EnvironmentLacking: ONNX Runtime is not installed.
        ConversionFailed: ``runtime-refuses``.
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
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry(FOLDER_KEY, str(source.folder.resolve()))
    try:
        return onnxruntime.InferenceSession(serialized(proto), options, providers=["CPUExecutionProvider"])
    except ConversionFailed:
        raise
    except Exception as problem:
        raise ConversionFailed(
            "runtime-refuses",
            "ONNX Runtime refuses to load the graph",
            evidence([str(problem).strip().splitlines()[0][:600]]),
            "the operator or type named above is not supported by this ONNX Runtime",
        ) from problem


def feed(batch: Batch) -> dict[str, Array]:
    """A request as ONNX Runtime takes it: text as objects, arrays without gaps."""
    import numpy as np

    return {
        name: array.astype(object) if array.dtype.kind == "U" else np.ascontiguousarray(array)
        if array.ndim
        else array
        for name, array in batch.items()
    }


def ask(session: Any, batch: Batch, outputs: list[str] | None = None) -> list[Any]:
    """Run a session.

    Raises:
        ConversionFailed: ``runtime-failed``: ONNX Runtime's words are the evidence.
    """
    try:
        answers: list[Any] = session.run(outputs, feed(batch))
    except Exception as problem:
        raise ConversionFailed(
            "runtime-failed",
            "ONNX Runtime fails on the samples",
            evidence([str(problem).strip().splitlines()[0][:600]]),
            "the operator named above does not accept these values",
        ) from problem
    return answers
