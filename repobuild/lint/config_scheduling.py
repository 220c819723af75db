"""Batching, queues, sequences, caching and instances (Triton's ``ValidateModelConfig``)."""

from __future__ import annotations

from typing import Any

from repobuild.lint.finding import Findings
from repobuild.lint.model import Model, View, enum_name
from repobuild.lint.states import check_states

_CORRID_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")
_STATEFUL = ("onnxruntime", "tensorrt", "pytorch")
_PAIRS = ("int32_false_true", "fp32_false_true", "bool_false_true")
_ONE_RESPONSE = ("onnxruntime", "tensorrt", "pytorch", "openvino", "tensorflow")


def check_scheduling(model: Model, view: View, findings: Findings, *, sets_batch: bool) -> None:
    """Check everything that decides when and where requests run.

    Args:
        model: The model.
        view: The configuration.
        findings: Where findings go.
        sets_batch: Whether the backend may set ``max_batch_size`` where it is 0.
    """
    config = view.config
    if config.max_batch_size < 0:
        findings.add(
            "max-batch-negative", f"max_batch_size is {config.max_batch_size}", *view.where("max_batch_size")
        )
    if config.HasField("dynamic_batching"):
        _check_dynamic(view, findings)
        if config.max_batch_size == 0 and not sets_batch:
            findings.add(
                "batching-without-batch",
                "dynamic_batching with max_batch_size 0",
                *view.where("dynamic_batching"),
            )
    if config.HasField("sequence_batching"):
        _check_sequences(model, view, findings)
    _check_cache(view, findings)
    _check_instances(view, findings)
    if config.model_transaction_policy.decoupled and view.effective.backend in _ONE_RESPONSE:
        findings.add(
            "decoupled-backend",
            f"the {view.effective.backend} backend gives one response a request",
            *view.where("model_transaction_policy", "decoupled"),
        )


def _check_dynamic(view: View, findings: Findings) -> None:
    config, batching = view.config, view.config.dynamic_batching
    for index, size in enumerate(batching.preferred_batch_size):
        place = view.where("dynamic_batching", "preferred_batch_size", index)
        if size <= 0:
            findings.add("preferred-size-invalid", f"preferred batch size {size} is not positive", *place)
        elif size > config.max_batch_size:
            findings.add(
                "preferred-size-large",
                f"preferred batch size {size} is above max_batch_size {config.max_batch_size}",
                *place,
            )
    levels = batching.priority_levels
    if levels and not 1 <= batching.default_priority_level <= levels:
        findings.add(
            "priority-default",
            f"default priority level must be in range [1, {levels}], got {batching.default_priority_level}",
            *view.where("dynamic_batching", "default_priority_level"),
        )
    for level in batching.priority_queue_policy:
        if levels and not 1 <= level <= levels:
            entry = view.positions.entry(str(level), "dynamic_batching", 0, "priority_queue_policy")
            findings.add(
                "priority-policy",
                f"priority queue policy must have a level in range [1, {levels}], got {level}",
                *view.where(*entry),
            )
    policies: list[tuple[Any, tuple[str | int, ...]]] = [
        (batching.default_queue_policy, ("dynamic_batching", 0, "default_queue_policy"))
    ]
    policies += [
        (policy, (*view.positions.entry(str(level), "dynamic_batching", 0, "priority_queue_policy"), "value"))
        for level, policy in batching.priority_queue_policy.items()
    ]
    for policy, at in policies:
        _check_policy(view, findings, policy, at)
    if batching.preserve_ordering and levels > 1:
        findings.add(
            "ordering-priorities",
            f"preserve_ordering is true and there are {levels} priority levels",
            *view.where("dynamic_batching", "preserve_ordering"),
        )


def _check_policy(view: View, findings: Findings, policy: Any, at: tuple[str | int, ...]) -> None:
    delays = enum_name(policy, "timeout_action") == "DELAY"
    timeout = policy.default_timeout_microseconds
    if delays and timeout and view.config.dynamic_batching.preserve_ordering:
        findings.add(
            "ordering-delay",
            "a queue policy delays expired requests and preserve_ordering is true",
            *view.where(*at, "timeout_action"),
        )
    if not timeout and (delays or policy.allow_timeout_override):
        field = "allow_timeout_override" if policy.allow_timeout_override else "timeout_action"
        findings.add(
            "timeout-without-effect",
            f"{field} has no effect while default_timeout_microseconds is 0",
            *view.where(*at, field),
        )


def _check_sequences(model: Model, view: View, findings: Findings) -> None:
    config, batcher = view.config, view.config.sequence_batching
    names: set[str] = set()
    kinds: set[str] = set()
    for index, item in enumerate(batcher.control_input):
        at: tuple[str | int, ...] = ("sequence_batching", 0, "control_input", index)
        if not item.name:
            findings.add("control-name-missing", "a control tensor must have a name", *view.where(*at))
        elif item.name in names:
            findings.add(
                "control-tensor-twice", f"control tensor '{item.name}' stands twice", *view.where(*at, "name")
            )
        names.add(item.name)
        for number, control in enumerate(item.control):
            kind = enum_name(control, "kind")
            here = (*at, "control", number)
            if kind in kinds:
                findings.add("control-kind-twice", f"{kind} stands twice", *view.where(*here, "kind"))
            kinds.add(kind)
            _check_control(view, findings, control, kind, here)
    if batcher.HasField("oldest"):
        for index, size in enumerate(batcher.oldest.preferred_batch_size):
            if not 1 <= size <= config.max_batch_size:
                findings.add(
                    "sequence-preferred-size",
                    f"preferred batch size {size} is not within 1 and max_batch_size {config.max_batch_size}",
                    *view.where("sequence_batching", 0, "oldest", 0, "preferred_batch_size", index),
                )
    if batcher.HasField("direct") and not 0 <= batcher.direct.minimum_slot_utilization <= 1:
        findings.add(
            "slot-utilization",
            f"minimum_slot_utilization is {batcher.direct.minimum_slot_utilization:g}",
            *view.where("sequence_batching", 0, "direct", 0, "minimum_slot_utilization"),
        )
    check_states(model, view, findings)


def _check_control(
    view: View, findings: Findings, control: Any, kind: str, at: tuple[str | int, ...]
) -> None:
    pairs = [name for name in _PAIRS if getattr(control, name)]
    if kind == "CONTROL_SEQUENCE_CORRID":
        if pairs:
            findings.add("control-corrid", f"{kind} must not have {pairs[0]}", *view.where(*at, pairs[0]))
        elif enum_name(control, "data_type") not in _CORRID_TYPES:
            findings.add(
                "control-corrid",
                f"{kind} has the data type {enum_name(control, 'data_type')}",
                *view.where(*at, "data_type"),
            )
    elif len(pairs) != 1:
        findings.add("control-pair", f"{kind} must have exactly one of {', '.join(_PAIRS)}", *view.where(*at))
    elif len(getattr(control, pairs[0])) != 2:
        findings.add(
            "control-pair", f"{pairs[0]} of {kind} must have exactly 2 entries", *view.where(*at, pairs[0])
        )


def _check_cache(view: View, findings: Findings) -> None:
    config = view.config
    if not config.response_cache.enable:
        return
    if config.HasField("sequence_batching"):
        findings.add(
            "cache-sequence", "response_cache with sequence batching", *view.where("response_cache", "enable")
        )
    if config.model_transaction_policy.decoupled:
        findings.add(
            "cache-decoupled", "response_cache on a decoupled model", *view.where("response_cache", "enable")
        )


def _check_instances(view: View, findings: Findings) -> None:
    config = view.config
    tensorrt = view.effective.backend == "tensorrt"
    for index, group in enumerate(config.instance_group):
        kind = enum_name(group, "kind")
        at: tuple[str | int, ...] = ("instance_group", index)
        if kind in ("KIND_CPU", "KIND_MODEL") and group.gpus:
            findings.add(
                "instance-cpu-gpus", f"{kind} with gpus {list(group.gpus)}", *view.where(*at, "gpus", 0)
            )
        if tensorrt and kind == "KIND_CPU" and not group.gpus:
            findings.add("instance-tensorrt-cpu", f"{kind} for a TensorRT model", *view.where(*at, "kind"))
        for number, profile in enumerate(group.profile):
            if not tensorrt or not (profile.isascii() and profile.isdigit()):
                findings.add(
                    "instance-profile",
                    f"profile '{profile}' of a {view.effective.backend or 'unknown'} model",
                    *view.where(*at, "profile", number),
                )
        if view.positions.has(*at, "count") and group.count < 1:
            findings.add("instance-count", f"count is {group.count}", *view.where(*at, "count"))
