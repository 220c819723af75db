"""Filling in what a config leaves out (Triton contract, instance groups and other defaults)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from repobuild_serve.config.settings import enum_name
from repobuild_serve.errors import Code, LoadError
from repobuild_serve.gpus import MIN_COMPUTE_CAPABILITY

SEQUENCE_IDLE_MICROSECONDS = 1_000_000
"""How long a sequence may be idle if the config does not say."""
DEFAULT_FILENAMES = {
    "tensorrt": "model.plan",
    "onnxruntime": "model.onnx",
    "openvino": "model.xml",
    "pytorch": "model.pt",
    "python": "model.py",
}
"""What ``default_model_filename`` is completed to, by backend; others keep it empty."""


def complete_config(config: Any, default_count: int, gpus: Collection[int] = ()) -> None:
    """Write the defaults into a validated ModelConfig message; doing so twice changes nothing more.

    Args:
        config: The message, changed in place.
        default_count: Instances of a group on the processor that names no count (a property of the backend).
        gpus: Ids of the GPUs that the backend may use.
    """
    if not config.HasField("version_policy"):
        config.version_policy.latest.num_versions = 1
    _complete_batching(config)
    if config.HasField("ensemble_scheduling"):
        return
    optimization = config.optimization
    for field in ("input_pinned_memory", "output_pinned_memory"):
        if not optimization.HasField(field):
            getattr(optimization, field).enable = True
    if not config.default_model_filename:
        config.default_model_filename = _filename(config)
    _complete_groups(config, default_count, gpus)


def _complete_batching(config: Any) -> None:
    largest = config.max_batch_size
    batchers = [config.dynamic_batching] if config.HasField("dynamic_batching") else []
    if config.HasField("sequence_batching"):
        batching = config.sequence_batching
        if batching.max_sequence_idle_microseconds == 0:
            batching.max_sequence_idle_microseconds = SEQUENCE_IDLE_MICROSECONDS
        if batching.HasField("oldest"):
            batchers.append(batching.oldest)
    for batcher in batchers:
        if largest > 0 and not batcher.preferred_batch_size:
            batcher.preferred_batch_size.append(largest)


def _filename(config: Any) -> str:
    if config.backend == "pytorch":
        if config.runtime == "model.py":
            return ""
        if config.platform == "torch_aoti":
            return "model.pt2"
    return DEFAULT_FILENAMES.get(config.backend, "")


def _complete_groups(config: Any, default_count: int, gpus: Collection[int]) -> None:
    if not config.instance_group:
        config.instance_group.add().name = config.name
    for index, group in enumerate(config.instance_group):
        group.name = group.name or f"{config.name}_{index}"
        if enum_name(group, "kind") == "KIND_AUTO":
            on_gpu = bool(gpus) and set(group.gpus) <= set(gpus)
            _set_kind(group, "KIND_GPU" if on_gpu else "KIND_CPU")
        kind = enum_name(group, "kind")
        if group.count <= 0:
            group.count = default_count if kind == "KIND_CPU" else 1
        if kind == "KIND_GPU" and not group.gpus:
            group.gpus.extend(sorted(gpus))


def resolve_instances(
    config: Any, gpus: Collection[int] = (), min_compute_capability: float = MIN_COMPUTE_CAPABILITY
) -> None:
    """Check that every instance group of a completed config can be had here.

    Args:
        config: The message.
        gpus: Ids of the GPUs that the backend may use.
        min_compute_capability: What a GPU must offer to be among them; only told.

    Raises:
        LoadError: A group asks for what cannot be had.
    """
    if config.HasField("ensemble_scheduling"):
        return
    for group in config.instance_group:
        kind = enum_name(group, "kind")
        said = f"instance group {group.name} of model {config.name}"
        if kind in {"KIND_CPU", "KIND_MODEL"}:
            if group.gpus:
                raise LoadError(f"{said} has kind {kind} but specifies one or more GPUs")
        elif kind == "KIND_GPU":
            if not group.gpus:
                raise LoadError(f"{said} has kind KIND_GPU but no GPUs are available")
            for number in group.gpus:
                if number not in gpus:
                    listed = ", ".join(map(str, sorted(gpus)))
                    raise LoadError(
                        f"{said} specifies invalid or unsupported gpu id {number}. GPUs with at least the "
                        "minimum required CUDA compute compatibility of "
                        f"{min_compute_capability:.6f} are: {listed}"
                    )
        else:
            raise LoadError(f"{said} has unexpected kind KIND_AUTO", Code.INTERNAL)
        _check_profiles(config, group, said)


def _check_profiles(config: Any, group: Any, said: str) -> None:
    for profile in group.profile:
        if config.platform != "tensorrt_plan":
            # No space before "specifies": Triton's text has none.
            raise LoadError(
                f"{said} and platform {config.platform}specifies profile field which is only supported for "
                "TensorRT models"
            )
        if not (profile.isascii() and profile.isdigit()):
            raise LoadError(
                f"{said} and platform {config.platform} specifies invalid profile {profile}. The field "
                "should contain the string representation of a non-negative integer."
            )


def _set_kind(group: Any, name: str) -> None:
    group.kind = group.DESCRIPTOR.fields_by_name["kind"].enum_type.values_by_name[name].number
