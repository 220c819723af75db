"""Session and run options of an ONNX model from its config (Triton contract, backend parameters)."""

from __future__ import annotations

import logging
import re
from typing import Any

from repobuild_serve.backends.parameters import boolean, integer, where
from repobuild_serve.config.settings import ModelSettings
from repobuild_serve.errors import LoadError

_LOG = logging.getLogger(__name__)
_GRAPH_LEVELS = {-1: "ORT_ENABLE_BASIC", 0: "ORT_ENABLE_ALL", 1: "ORT_ENABLE_EXTENDED", 2: "ORT_DISABLE_ALL"}
_ALLOCATOR = "session.use_device_allocator_for_initializers"
_SHRINKAGE = "memory.enable_memory_arena_shrinkage"
_DEVICES = re.compile(r"(cpu|gpu):\d+(;(cpu|gpu):\d+)*")
_GPU_ONLY = ("cudnn_conv_algo_search", "gpu_mem_limit", "arena_extend_strategy", "do_copy_in_default_stream")
_KNOWN = frozenset(
    {
        "intra_op_thread_count",
        "inter_op_thread_count",
        "execution_mode",
        "enable_mem_arena",
        "enable_mem_pattern",
        _ALLOCATOR,
        _SHRINKAGE,
        *_GPU_ONLY,
    }
)


def session_options(ort: Any, settings: ModelSettings, *, on_gpu: bool, global_threads: bool) -> Any:
    """The options of one instance's session.

    Args:
        ort: The ``onnxruntime`` module.
        settings: The model's configuration.
        on_gpu: Whether the instance runs on a GPU.
        global_threads: Whether all sessions share one thread pool.

    Raises:
        LoadError: A parameter has a value of the wrong kind.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _graph_level(settings))
    mode = _integer(settings, "execution_mode")
    if mode not in {0, 1}:
        raise LoadError(
            "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 but got "
            f"{mode} ."
        )
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL if mode else ort.ExecutionMode.ORT_SEQUENTIAL
    _set_threads(options, settings, global_threads=global_threads)
    options.enable_cpu_mem_arena = _switch(settings, "enable_mem_arena")
    options.enable_mem_pattern = _switch(settings, "enable_mem_pattern")
    allocator = settings.parameters.get(_ALLOCATOR)
    if allocator is not None:
        if allocator not in {"0", "1"}:
            raise LoadError(f"{where(settings, _ALLOCATOR)} must be 0 or 1, not '{allocator}'")
        options.add_session_config_entry(_ALLOCATOR, allocator)
    _tell_what_has_no_effect(settings, on_gpu=on_gpu)
    return options


def run_options(ort: Any, settings: ModelSettings) -> Any:
    """The options of every run, or None for ONNX Runtime's own.

    Raises:
        LoadError: The devices whose arenas are to shrink are not spelled as ONNX Runtime wants them.
    """
    shrink = settings.parameters.get(_SHRINKAGE)
    if not shrink:
        return None
    if _DEVICES.fullmatch(shrink) is None:
        raise LoadError(
            f"{where(settings, _SHRINKAGE)} must list devices such as cpu:0 or cpu:0;gpu:0, not '{shrink}'"
        )
    options = ort.RunOptions()
    options.add_run_config_entry(_SHRINKAGE, shrink)
    return options


def _graph_level(settings: ModelSettings) -> str:
    if settings.graph_level not in _GRAPH_LEVELS:
        _LOG.warning(
            "model %s: optimization.graph.level %d is none of -1, 0, 1 and 2 and counts as 0",
            settings.name,
            settings.graph_level,
        )
    return _GRAPH_LEVELS.get(settings.graph_level, _GRAPH_LEVELS[0])


def _set_threads(options: Any, settings: ModelSettings, *, global_threads: bool) -> None:
    within, across = (_integer(settings, f"{kind}_op_thread_count") for kind in ("intra", "inter"))
    if global_threads:
        options.use_per_session_threads = False
        if within > 0 or across > 0:
            _LOG.warning(
                "model %s: its thread counts have no effect, since all sessions share the global thread pool",
                settings.name,
            )
        return
    # 0 is ONNX Runtime's default, one thread per core; Triton takes what is below 0 for it too.
    options.intra_op_num_threads, options.inter_op_num_threads = max(0, within), max(0, across)


def _tell_what_has_no_effect(settings: ModelSettings, *, on_gpu: bool) -> None:
    for key in settings.parameters:
        if key in _GPU_ONLY and not on_gpu:
            _LOG.info("model %s: parameter '%s' has no effect on a CPU instance", settings.name, key)
        elif key not in _KNOWN:
            _LOG.warning("model %s: the onnxruntime backend has no parameter '%s'", settings.name, key)


def _integer(settings: ModelSettings, key: str) -> int:
    return integer(settings.parameters.get(key, "0"), where(settings, key))


def _switch(settings: ModelSettings, key: str) -> bool:
    return boolean(settings.parameters.get(key, "1"), where(settings, key))
