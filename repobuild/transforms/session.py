"""ONNX Runtime sessions of graphs in memory, whose weights may lie on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from repobuild.errors import ConversionFailed, EnvironmentLacking, evidence
from repobuild.tensors import Array, Batch
from repobuild.transforms.files import GraphFile
from repobuild.transforms.writing import serialized

if TYPE_CHECKING:
    from onnx import ModelProto

FOLDER_KEY = "session.model_external_initializers_file_folder_path"
"""Where a graph that is loaded from memory finds its data files
(onnxruntime/core/session/onnxruntime_session_options_config_keys.h)."""


def session_options(source: GraphFile, level: str) -> Any:
    """Options for one thread, the weights of a file, and one of ONNX Runtime's levels of optimisation.

    Args:
        source: The file that the weights lie in.
        level: A name of ``onnxruntime.GraphOptimizationLevel``.

    Raises:
        EnvironmentLacking: ONNX Runtime is not installed.
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
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.add_session_config_entry(FOLDER_KEY, str(source.folder.resolve()))
    return options


def open_graph(proto: ModelProto, source: GraphFile, *, optimised: bool = False, options: Any = None) -> Any:
    """Load a graph on the CPU, one thread.

    Args:
        proto: The graph, which may have been changed.
        source: The file that its weights lie in.
        optimised: Whether ONNX Runtime optimises it as it does when it serves; otherwise every tensor is what
            its node makes.
        options: Session options, in place of those that go with ``optimised``.

    Raises:
        EnvironmentLacking: ONNX Runtime is not installed.
        ConversionFailed: ``runtime-refuses``.
    """
    if options is None:
        options = session_options(source, "ORT_ENABLE_ALL" if optimised else "ORT_DISABLE_ALL")
    import onnxruntime

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

    def plain(array: Array) -> Array:
        if array.dtype.kind == "U":
            return array.astype(object)
        return np.ascontiguousarray(array) if array.ndim else array  # which would give a scalar an axis

    return {name: plain(array) for name, array in batch.items()}


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
