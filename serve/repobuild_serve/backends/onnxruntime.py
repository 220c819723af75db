"""Models in ONNX format, run by ONNX Runtime on the processor."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repobuild_serve.backends import onnx_check
from repobuild_serve.config.settings import ModelSettings
from repobuild_serve.errors import Code, LoadError, RequestError, StartError

if TYPE_CHECKING:
    import numpy as np

_LOG = logging.getLogger(__name__)
_GRAPH_LEVELS = {-1: "ORT_ENABLE_BASIC", 1: "ORT_ENABLE_EXTENDED", 2: "ORT_DISABLE_ALL"}
_CPU_PARAMETERS = (
    "intra_op_thread_count",
    "inter_op_thread_count",
    "execution_mode",
    "enable_mem_arena",
    "enable_mem_pattern",
    "session.use_device_allocator_for_initializers",
    "memory.enable_memory_arena_shrinkage",
)
_GPU_PARAMETERS = (
    "cudnn_conv_algo_search",
    "gpu_mem_limit",
    "arena_extend_strategy",
    "do_copy_in_default_stream",
)


class OnnxRuntimeBackend:
    """The ``onnxruntime`` backend: one session per instance (Triton contract, backend parameters)."""

    platform = "onnxruntime_onnx"
    default_filename = "model.onnx"
    default_count = 2

    def complete(self, config: Any, path: Path) -> None:
        """See ``Backend.complete``."""
        if config.input and config.output:
            return
        onnx_check.complete(config, self._session(path, None, {}))

    def open(self, settings: ModelSettings, path: Path, instance_name: str) -> OnnxInstance:
        """See ``Backend.open``."""
        options = self._options(settings)
        session = self._session(path, options, settings.parameters)
        onnx_check.check(settings, session)
        _LOG.debug("instance %s holds %s", instance_name, path)
        return OnnxInstance(session, settings)

    def _session(self, path: Path, options: Any, parameters: Mapping[str, str]) -> Any:
        ort = _onnxruntime()
        if path.is_dir():
            path /= "model.onnx"
        if options is None:
            options = ort.SessionOptions()
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as exc:
            raise LoadError(f"onnx runtime error: {exc}", Code.INTERNAL) from exc

    def _options(self, settings: ModelSettings) -> Any:
        ort = _onnxruntime()
        options = ort.SessionOptions()
        options.log_severity_level = 3
        level = _GRAPH_LEVELS.get(settings.graph_level, "ORT_ENABLE_ALL")
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        values = {
            key: _integer(settings, key)
            for key in _CPU_PARAMETERS
            if key in settings.parameters and "." not in key
        }
        options.intra_op_num_threads = max(0, values.get("intra_op_thread_count", 0))
        options.inter_op_num_threads = max(0, values.get("inter_op_thread_count", 0))
        parallel = values.get("execution_mode", 0) == 1
        options.execution_mode = (
            ort.ExecutionMode.ORT_PARALLEL if parallel else ort.ExecutionMode.ORT_SEQUENTIAL
        )
        options.enable_cpu_mem_arena = values.get("enable_mem_arena", 1) != 0
        options.enable_mem_pattern = values.get("enable_mem_pattern", 1) != 0
        allocator = settings.parameters.get("session.use_device_allocator_for_initializers")
        if allocator is not None:
            options.add_session_config_entry("session.use_device_allocator_for_initializers", allocator)
        for key in _GPU_PARAMETERS:
            if key in settings.parameters:
                _LOG.info("model %s: parameter '%s' has no effect without a GPU", settings.name, key)
        return options


class OnnxInstance:
    """A session and the arrays it takes and gives."""

    def __init__(self, session: Any, settings: ModelSettings) -> None:
        self._session = session
        self._outputs = [item.name for item in settings.outputs]
        self._strings = frozenset(item.name for item in settings.inputs if item.datatype.wire == "BYTES")
        self._scalars = [item.name for item in session.get_inputs() if not item.shape]
        self._scalar_outputs = {
            index: item.model_dims
            for index, item in enumerate(settings.outputs)
            if not _output_shape(session, item.name)
        }
        self._run_options = _run_options(settings)

    def run(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> Sequence[np.ndarray[Any, Any]]:
        """See ``Instance.run``."""
        feed = dict(inputs)
        for name in self._strings:
            feed[name] = _decoded(name, feed[name])
        for name in self._scalars:
            feed[name] = feed[name].reshape(())
        result: list[np.ndarray[Any, Any]] = self._session.run(self._outputs, feed, self._run_options)
        for index, dims in self._scalar_outputs.items():
            result[index] = result[index].reshape(dims)
        return result

    def close(self) -> None:
        """See ``Instance.close``."""
        self._session = None


def _output_shape(session: Any, name: str) -> list[Any]:
    return next(list(item.shape) for item in session.get_outputs() if item.name == name)


def _decoded(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    texts = np.empty(array.shape, dtype=object)
    try:
        texts.ravel()[:] = [element.decode("utf-8") for element in array.ravel()]
    except UnicodeDecodeError as exc:
        raise RequestError(
            f"input '{name}' holds a string that is not UTF-8, which this backend cannot take: {exc}"
        ) from exc
    return texts


def _integer(settings: ModelSettings, key: str) -> int:
    text = settings.parameters[key]
    try:
        return int(text)
    except ValueError as exc:
        raise LoadError(f"parameter '{key}' of model '{settings.name}' is not an integer: '{text}'") from exc


def _run_options(settings: ModelSettings) -> Any:
    shrink = settings.parameters.get("memory.enable_memory_arena_shrinkage")
    if not shrink:
        return None
    options = _onnxruntime().RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", shrink)
    return options


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as exc:
        raise StartError(
            "onnxruntime-missing",
            "ONNX Runtime is not installed, and the repository has models for it",
            evidence=(str(exc),),
            hint="pip install 'repobuild[cpu]' (or 'repobuild[gpu]' on a machine with an NVIDIA GPU)",
            exit_code=7,
        ) from exc
    return onnxruntime
