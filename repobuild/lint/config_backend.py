"""Name, backend, platform and the backend's own settings in a configuration."""

from __future__ import annotations

import difflib
import re

from repobuild.lint.finding import Findings
from repobuild.lint.model import PLATFORMS, Model, View, served_versions
from repobuild.lint.op_libraries import check_op_libraries

BACKENDS = (
    "onnxruntime", "tensorrt", "pytorch", "python", "openvino", "tensorflow", "dali", "fil", "vllm",
    "tensorrtllm", "identity", "repeat", "square",
)  # fmt: skip
"""Backends of the standard containers, and those of Triton's examples."""
_AGENTS = ("checksum",)
_USES_PLATFORM = ("onnxruntime", "tensorrt", "pytorch", "tensorflow", "ensemble")
_INTEGERS = {
    "intra_op_thread_count": None,
    "inter_op_thread_count": None,
    "execution_mode": (0, 1),
    "cudnn_conv_algo_search": (0, 2),
    "arena_extend_strategy": (0, 1),
}
"""Parameters that the ONNX Runtime backend reads as whole numbers, with their ranges."""
_BOOLEANS = ("enable_mem_arena", "enable_mem_pattern")
_TRUTHS = ("true", "on", "1", "false", "off", "0")
_OTHERS = (
    "session.use_device_allocator_for_initializers",
    "memory.enable_memory_arena_shrinkage",
    "gpu_mem_limit",
    "do_copy_in_default_stream",
)
_ACCELERATORS = {
    "gpu_execution_accelerator": ("tensorrt", "cuda"),
    "cpu_execution_accelerator": ("openvino",),
}
_LABEL = re.compile(r"[a-zA-Z0-9_]*")
"""What a metric tag's key may be; Triton puts ``_`` before it."""
_STOI = re.compile(r"\s*[+-]?[0-9]+")


def check_backend(model: Model, view: View, findings: Findings) -> None:
    """Check who serves the model, and what is told to that backend."""
    config, at = view.config, view.where
    if config.name and config.name != model.name:
        findings.add(
            "name-mismatch",
            f"unexpected directory name '{model.name}' for model '{config.name}'",
            *at("name"),
        )
    _check_identity(model, view, findings)
    _check_runtime(model, view, findings)
    if view.effective.backend == "onnxruntime":
        _check_parameters(view, findings)
        _check_accelerators(view, findings)
    check_op_libraries(model, view, findings)
    if view.effective.backend == "python":
        _check_environment(model, view, findings)
    for key in sorted(config.metric_tags):
        if not _LABEL.fullmatch(key):
            findings.add(
                "metric-tag-name",
                f"metric tag '{key}' is no Prometheus label",
                *at(*view.positions.entry(key, "metric_tags")),
            )
    if config.HasField("model_repository_agents") and not config.model_repository_agents.agents:
        findings.add(
            "agents-empty", "model_repository_agents without an agent", *at("model_repository_agents")
        )
    for index, agent in enumerate(config.model_repository_agents.agents):
        if agent.name not in _AGENTS:
            findings.add(
                "agent-unknown",
                f"repository agent '{agent.name}' needs its library on the server",
                *at("model_repository_agents", 0, "agents", index, "name"),
            )


def _check_identity(model: Model, view: View, findings: Findings) -> None:
    config, at = view.config, view.where
    backend, platform = config.backend, config.platform
    if platform == "ensemble":
        if backend:
            findings.add("ensemble-platform", f"an ensemble with the backend '{backend}'", *at("backend"))
        return
    if not backend and platform and platform not in PLATFORMS:
        near = difflib.get_close_matches(platform, PLATFORMS, 1)
        findings.add(
            "platform-unknown",
            f"unexpected platform type '{platform}'",
            *at("platform"),
            hint=f"did you mean '{near[0]}'?" if near else None,
        )
        return
    if not view.effective.backend:
        findings.add(
            "backend-undetermined",
            f"could not determine the backend of model '{model.name}'",
            *at(),
            evidence=[f"the folder holds {', '.join(c.name for c in model.children[:8]) or 'nothing'}"],
        )
        return
    if backend and backend not in BACKENDS:
        near = difflib.get_close_matches(backend, BACKENDS, 1, 0.75)
        if near and not _has_library(model, backend):
            findings.add(
                "backend-misspelt",
                f"unable to find backend library for backend '{backend}'",
                *at("backend"),
                hint=f"did you mean '{near[0]}'?",
            )
        elif not _has_library(model, backend):
            findings.add("backend-unknown", f"backend '{backend}' is not a standard one", *at("backend"))
    elif not backend and view.effective.backend not in (*BACKENDS, "ensemble"):
        findings.add(
            "backend-unknown",
            f"without a configuration, Triton takes '{view.effective.backend}' from the folder's name "
            "for the backend",
            *at(),
        )
    if backend and platform:
        if backend not in _USES_PLATFORM:
            findings.add("platform-ignored", f"platform '{platform}' of a {backend} model", *at("platform"))
        elif PLATFORMS.get(platform) != backend:
            findings.add(
                "platform-backend-mismatch",
                f"unexpected 'platform' and 'backend' pair, got: {platform}, {backend}",
                *at("platform"),
            )


def _has_library(model: Model, backend: str) -> bool:
    """Whether the model brings its backend's library along."""
    names = (f"libtriton_{backend}.so", "model.py")
    return any(c.name == names[0] for c in model.children) or any(
        e.name == names[0] for v in model.versions.values() for e in model.tree.children(v)
    )


def _check_runtime(model: Model, view: View, findings: Findings) -> None:
    """Triton looks for the library in the version, the model and the backend's folder, in this order."""
    runtime, backend = view.config.runtime, view.effective.backend
    usual = (f"libtriton_{backend}.so", "model.py")
    if not runtime or runtime in usual or (backend not in BACKENDS and "/" not in runtime):
        return
    parts = runtime.split("/")
    served = [model.versions[n].name for n in served_versions(model, view.config)]
    folders: list[tuple[str, ...]] = [(), *((name,) for name in served)]
    if not any(found.is_file for f in folders if (found := model.at(*f, *parts)) is not None):
        findings.add(
            "runtime-missing",
            f"unable to find '{runtime}' for model '{model.name}'",
            *view.where("runtime"),
        )


def _check_parameters(view: View, findings: Findings) -> None:
    known = (*_INTEGERS, *_BOOLEANS, *_OTHERS)
    for key, parameter in sorted(view.config.parameters.items()):
        place = view.where(*view.positions.entry(key, "parameters"))
        value = parameter.string_value
        if key in _INTEGERS:
            if not _STOI.match(value):
                findings.add("parameter-not-integer", f"failed to convert '{value}' of {key}", *place)
                continue
            number, limits = int(_STOI.match(value)[0]), _INTEGERS[key]  # type: ignore[index]
            if limits and not limits[0] <= number <= limits[1]:
                findings.add(
                    "parameter-out-of-range",
                    f"{key} is {number}, and must be within {limits[0]} and {limits[1]}",
                    *place,
                )
            elif abs(number) >= 1 << 31:
                findings.add("parameter-out-of-range", f"{key} is {number}, too large a number", *place)
        elif key in _BOOLEANS:
            if value.lower() not in _TRUTHS:
                findings.add("parameter-not-boolean", f"failed to convert '{value}' of {key}", *place)
        elif key not in _OTHERS:
            near = difflib.get_close_matches(key, known, 1, 0.8)
            if near:
                findings.add(
                    "parameter-misspelt",
                    f"the backend does not read '{key}'",
                    *place,
                    hint=f"did you mean '{near[0]}'?",
                )


def _check_accelerators(view: View, findings: Findings) -> None:
    accelerators = view.config.optimization.execution_accelerators
    for field, known in _ACCELERATORS.items():
        for index, item in enumerate(getattr(accelerators, field)):
            if item.name not in known:
                findings.add(
                    "accelerator-unknown",
                    f"unknown Execution Accelerator '{item.name}' is requested; {field} may be "
                    f"{' or '.join(known)}",
                    *view.where("optimization", 0, "execution_accelerators", 0, field, index, "name"),
                )


def _check_environment(model: Model, view: View, findings: Findings) -> None:
    key = "EXECUTION_ENV_PATH"
    if key not in view.config.parameters:
        return
    value = view.config.parameters[key].string_value
    variable = "$$TRITON_MODEL_DIRECTORY/"
    if not value.startswith(variable):
        return
    parts = [p for p in value.removeprefix(variable).split("/") if p]
    if ".." not in parts and model.at(*parts) is None:
        findings.add(
            "environment-missing",
            f"{'/'.join(parts)} is not in the model's folder",
            *view.where(*view.positions.entry(key, "parameters")),
        )
