"""Filling in what a config leaves out (Triton contract, instance groups and other defaults)."""

from __future__ import annotations

from typing import Any

from repobuild_serve.config.settings import enum_name
from repobuild_serve.errors import LoadError


def complete_config(config: Any, default_count: int) -> None:
    """Write the defaults into a validated ModelConfig message.

    Args:
        config: The message, changed in place.
        default_count: Instances of a group that names no count (a property of the backend).
    """
    if not config.version_policy.WhichOneof("policy_choice"):
        config.version_policy.latest.num_versions = 1
    optimization = config.optimization
    for field in ("input_pinned_memory", "output_pinned_memory"):
        if not optimization.HasField(field):
            getattr(optimization, field).enable = True
    batching = config.dynamic_batching if config.HasField("dynamic_batching") else None
    if batching is not None and config.max_batch_size > 0 and not batching.preferred_batch_size:
        batching.preferred_batch_size.append(config.max_batch_size)
    if not config.instance_group:
        group = config.instance_group.add()
        group.name = config.name
    for index, group in enumerate(config.instance_group):
        group.name = group.name or f"{config.name}_{index}"
        if group.count <= 0:
            group.count = default_count


def resolve_instances(config: Any) -> None:
    """Turn every instance group into one for the processor; this release runs on CPUs only.

    Raises:
        LoadError: A group asks for what cannot be had.
    """
    for group in config.instance_group:
        kind = enum_name(group, "kind")
        if kind == "KIND_GPU":
            raise LoadError(
                f"instance group {group.name} of model {config.name} has kind KIND_GPU but no GPUs are "
                "available"
            )
        if kind == "KIND_CPU" and group.gpus:
            raise LoadError(
                f"instance group {group.name} of model {config.name} has kind KIND_CPU but specifies one "
                "or more GPUs"
            )
        if group.profile:
            raise LoadError(
                f"instance group {group.name} of model {config.name} and platform {config.platform} "
                "specifies "
                "profile field which is only supported for TensorRT models"
            )
        if kind == "KIND_AUTO":
            del group.gpus[:]
            group.kind = _kind_number(group, "KIND_CPU")


def _kind_number(group: Any, name: str) -> int:
    return int(group.DESCRIPTOR.fields_by_name["kind"].enum_type.values_by_name[name].number)
