"""Execution providers of an ONNX model: the accelerators of its config, and CUDA for GPU instances.

Each provider needs a build of ONNX Runtime that has it; Triton contract, backend parameters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from repobuild_serve.backends.parameters import Placement, boolean, integer, no_gpu, where
from repobuild_serve.config.settings import ModelSettings
from repobuild_serve.errors import LoadError

_LOG = logging.getLogger(__name__)
Provider = tuple[str, dict[str, str]]

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
_TENSORRT = "TensorrtExecutionProvider"
_OPENVINO = "OpenVINOExecutionProvider"
_PACKAGES = {CUDA: "onnxruntime-gpu", _TENSORRT: "onnxruntime-gpu", _OPENVINO: "onnxruntime-openvino"}

_TEXT, _SWITCH, _NUMBER = "text", "switch", "number"
_TENSORRT_PARAMETERS = {
    "max_workspace_size_bytes": ("trt_max_workspace_size", _NUMBER),
    "int8_calibration_table_name": ("trt_int8_calibration_table_name", _TEXT),
    "int8_use_native_calibration_table": ("trt_int8_use_native_calibration_table", _SWITCH),
    **{
        key: (key, kind)
        for kind, keys in {
            _NUMBER: (
                "trt_max_partition_iterations",
                "trt_min_subgraph_size",
                "trt_dla_core",
                "trt_builder_optimization_level",
                "trt_auxiliary_streams",
                "trt_ep_context_embed_mode",
            ),
            _SWITCH: (
                "trt_dla_enable",
                "trt_engine_cache_enable",
                "trt_dump_subgraphs",
                "trt_force_sequential_engine_build",
                "trt_context_memory_sharing_enable",
                "trt_layer_norm_fp32_fallback",
                "trt_timing_cache_enable",
                "trt_force_timing_cache",
                "trt_detailed_build_log",
                "trt_build_heuristics_enable",
                "trt_sparsity_enable",
                "trt_cuda_graph_enable",
                "trt_dump_ep_context_model",
            ),
            _TEXT: (
                "trt_engine_cache_path",
                "trt_engine_cache_prefix",
                "trt_timing_cache_path",
                "trt_tactic_sources",
                "trt_extra_plugin_lib_paths",
                "trt_profile_min_shapes",
                "trt_profile_max_shapes",
                "trt_profile_opt_shapes",
                "trt_ep_context_file_path",
            ),
        }.items()
        for key in keys
    },
}
_PRECISIONS = {"FP32": None, "FP16": "trt_fp16_enable", "BF16": "trt_bf16_enable", "INT8": "trt_int8_enable"}
_CUDA_SWITCHES = ("do_copy_in_default_stream", "use_ep_level_unified_stream")
_ALGORITHMS = ("EXHAUSTIVE", "HEURISTIC", "DEFAULT")
_ARENA_STRATEGIES = ("kNextPowerOfTwo", "kSameAsRequested")


def providers(
    settings: ModelSettings, place: Placement, instance_name: str, available: list[str]
) -> list[Provider]:
    """The providers of one instance, most wanted first; the CPU is always the last.

    Args:
        settings: The model's configuration.
        place: Where the instance runs.
        instance_name: Its name, for errors.
        available: What the installed build of ONNX Runtime has.

    Raises:
        LoadError: An accelerator or one of its parameters is unknown, or the build does not have it.
    """
    accelerators = settings.message.optimization.execution_accelerators
    gpu = [
        _accelerator(settings, entry, {"tensorrt": (_TENSORRT, _tensorrt), "cuda": (CUDA, _cuda)}, available)
        for entry in accelerators.gpu_execution_accelerator
    ]
    cpu = [
        _accelerator(settings, entry, {"openvino": (_OPENVINO, _openvino)}, available)
        for entry in accelerators.cpu_execution_accelerator
    ]
    cuda = _cuda_parameters(settings)
    if place.on_gpu:
        if CUDA not in available:
            raise no_gpu(settings, instance_name, _lacking(CUDA, available))
        device = {"device_id": str(place.device)}
        for provider, options in gpu:
            if provider == CUDA:
                cuda = {**options, **cuda}
        gpu = [(name, {**options, **device}) for name, options in gpu if name != CUDA]
        gpu.append((CUDA, {**cuda, **device}))
    elif gpu:
        _LOG.warning(
            "model %s: instance %s runs on the CPU, where the GPU accelerators of its configuration have no "
            "effect",
            settings.name,
            instance_name,
        )
        gpu = []
    return [*gpu, *cpu, (CPU, {})]


def _accelerator(
    settings: ModelSettings,
    entry: Any,
    known: Mapping[str, tuple[str, Callable[[ModelSettings, Mapping[str, str]], dict[str, str]]]],
    available: list[str],
) -> Provider:
    if entry.name not in known:
        raise LoadError(f"unknown Execution Accelerator '{entry.name}' is requested")
    provider, translate = known[entry.name]
    options = translate(settings, entry.parameters)
    if provider not in available:
        raise LoadError(
            f"Execution Accelerator '{entry.name}' of model '{settings.name}' is not available: "
            f"{_lacking(provider, available)}"
        )
    return provider, options


def _lacking(provider: str, available: list[str]) -> str:
    return (
        f"the installed ONNX Runtime has no {provider}, only {', '.join(available)}; pip install "
        f"{_PACKAGES[provider]} in its place"
    )


def _tensorrt(settings: ModelSettings, parameters: Mapping[str, str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for key, text in sorted(parameters.items()):
        if key == "precision_mode":
            if text not in _PRECISIONS:
                raise LoadError(f"unsupported precision mode '{text}' is requested")
            switch = _PRECISIONS[text]
            if switch is not None:
                options[switch] = "1"
            continue
        if key not in _TENSORRT_PARAMETERS:
            raise LoadError(f"unknown parameter '{key}' is provided for TensorRT Execution Accelerator")
        name, kind = _TENSORRT_PARAMETERS[key]
        options[name] = _option(settings, key, text, kind)
    return options


def _cuda(settings: ModelSettings, parameters: Mapping[str, str]) -> dict[str, str]:
    """Everything goes to ONNX Runtime, which refuses what it does not know."""
    return {
        key: _option(settings, key, text, _SWITCH if key in _CUDA_SWITCHES else _TEXT)
        for key, text in sorted(parameters.items())
    }


def _openvino(settings: ModelSettings, parameters: Mapping[str, str]) -> dict[str, str]:
    del settings
    for key in sorted(parameters):
        raise LoadError(f"unknown parameter '{key}' is provided for OpenVINO Execution Accelerator")
    return {"device_type": "CPU"}


def _option(settings: ModelSettings, key: str, text: str, kind: str) -> str:
    if kind == _SWITCH:
        return str(int(boolean(text, where(settings, key))))
    if kind == _NUMBER:
        return str(integer(text, where(settings, key)))
    return text


def _cuda_parameters(settings: ModelSettings) -> dict[str, str]:
    """CUDA's options from the model's ``parameters``; checked without a GPU too."""
    given, options = settings.parameters, {}
    if "cudnn_conv_algo_search" in given:
        options["cudnn_conv_algo_search"] = _choice(settings, "cudnn_conv_algo_search", _ALGORITHMS)
    if "arena_extend_strategy" in given:
        options["arena_extend_strategy"] = _choice(settings, "arena_extend_strategy", _ARENA_STRATEGIES)
    if "gpu_mem_limit" in given:
        key = "gpu_mem_limit"
        options[key] = str(integer(given[key], where(settings, key)))
    if "do_copy_in_default_stream" in given:
        key = "do_copy_in_default_stream"
        options[key] = str(int(boolean(given[key], where(settings, key))))
    return options


def _choice(settings: ModelSettings, key: str, names: tuple[str, ...]) -> str:
    number = integer(settings.parameters[key], where(settings, key))
    if not 0 <= number < len(names):
        raise LoadError(f"unsupported {key} value '{number}' is requested")
    return names[number]
