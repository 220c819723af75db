"""The ``serving:`` section of a recipe: ModelConfig fields under Triton's own names."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from repobuild.errors import InputInvalid, evidence
from repobuild.triton import model_config

OWNED = {
    "name": "it is the recipe's own key 'name'",
    "platform": "the target decides it",
    "backend": "the target decides it",
    "input": "inputs: in the recipe name them",
    "output": "outputs: in the recipe name them",
    "model_warmup": "warm-up samples are made from the samples",
    "default_model_filename": "the target decides it",
    "cc_model_filenames": "the target decides it",
    "ensemble_scheduling": "an ensemble is made of several models, not of one",
}
"""Fields of ModelConfig that a recipe cannot set under ``serving:``, and why."""


UNVERIFIABLE = {
    "sequence_batching": "the bundled server has no sequence batcher",
    "batch_input": "the bundled server has no batch inputs",
    "batch_output": "the bundled server has no batch outputs",
    "model_repository_agents": "the bundled server has no repository agents",
    "runtime": "the bundled server has one runtime for a backend",
    "model_transaction_policy": "an ONNX model answers each request once, so it cannot be decoupled",
}
"""Fields on which answers or loading depend and that the bundled server does not have, and why."""

WHOLE_NUMBERS = ("intra_op_thread_count", "inter_op_thread_count", "execution_mode")
"""Parameters that Triton's ONNX Runtime backend reads as whole numbers (onnxruntime_backend, README)."""

GRAPH_LEVELS = {-1: "basic", 0: "all", 1: "extended", 2: "none"}
"""Levels of graph optimization that the ONNX Runtime backend tells apart; it takes others for 0."""


def serving_mistakes(serving: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every mistake in a ``serving:`` section, with its key path inside the section."""
    for key in serving:
        if key in OWNED:
            yield (key,), f"this field cannot be set here: {OWNED[key]}"
    allowed = {k: v for k, v in serving.items() if k not in OWNED}
    yield from _mistakes(allowed, model_config().DESCRIPTOR, ())
    size = serving.get("max_batch_size")
    if isinstance(size, int) and not isinstance(size, bool) and size < 0:
        yield ("max_batch_size",), f"must be at least 0, got {size}"
    batching = serving.get("dynamic_batching")
    if isinstance(batching, dict):
        yield from _preferred_mistakes(batching.get("preferred_batch_size"), size)
        yield from _priority_mistakes(batching)
    yield from _policy_mistakes(serving.get("version_policy"))
    yield from _group_mistakes(serving.get("instance_group"))
    yield from _parameter_mistakes(serving.get("parameters"))
    yield from _level_mistakes(serving.get("optimization"))
    for key, why in UNVERIFIABLE.items():
        value = serving.get(key)
        harmless = value == [] or (key == "model_transaction_policy" and value in ({}, {"decoupled": False}))
        if value is not None and not harmless:
            yield (key,), f"a model with this field cannot be verified: {why}"


def serving_config(serving: Mapping[str, Any]) -> Any:
    """A ModelConfig message with the fields that a recipe sets.

    Raises:
        InputInvalid: The section is wrong; :func:`serving_mistakes` says how in detail.
    """
    from google.protobuf import json_format

    message = model_config()
    try:
        json_format.ParseDict(dict(serving), message)
    except json_format.ParseError as problem:
        raise InputInvalid(
            "serving-invalid",
            "serving: does not make a Triton model configuration",
            evidence([str(problem)]),
            "fields bear the names of Triton's model_config.proto",
        ) from problem
    return message


def _mistakes(
    value: Any, descriptor: Any, at: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Walk a mapping against a message descriptor."""
    if not isinstance(value, dict):
        yield at, f"must be a mapping of {descriptor.name} fields, got {value!r}"
        return
    fields = {f.name: f for f in descriptor.fields}
    for key, child in value.items():
        here = (*at, key)
        if key not in fields:
            near = difflib.get_close_matches(key, fields, 1)
            also = f"; did you mean '{near[0]}'?" if near else ""
            yield here, f"Triton's {descriptor.name} has no field '{key}'{also}"
            continue
        yield from _field_mistakes(child, fields[key], here)


def _field_mistakes(
    value: Any, field: Any, at: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        if not isinstance(value, dict):
            yield at, f"must be a mapping, got {value!r}"
            return
        for key, child in value.items():
            yield from _one_mistake(child, message.fields_by_name["value"], (*at, key))
    elif _repeated(field):
        if not isinstance(value, list):
            yield at, f"must be a list, got {value!r}"
            return
        for index, child in enumerate(value):
            yield from _one_mistake(child, field, (*at, index))
    else:
        yield from _one_mistake(value, field, at)


def _one_mistake(
    value: Any, field: Any, at: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if field.message_type is not None:
        yield from _mistakes(value, field.message_type, at)
    elif field.enum_type is not None:
        names = [v.name for v in field.enum_type.values]
        if value not in names:
            yield at, f"must be one of {', '.join(names)}, got {value!r}"
    elif not _scalar_fits(value, field):
        yield at, f"must be {_KINDS[field.cpp_type]}, got {value!r}"


def _preferred_mistakes(sizes: Any, largest: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for index, size in enumerate(sizes if isinstance(sizes, list) else ()):
        if not isinstance(size, int) or isinstance(size, bool):
            continue
        at = ("dynamic_batching", "preferred_batch_size", index)
        if size < 1:
            yield at, f"a preferred batch size must be positive, got {size}"
        elif isinstance(largest, int) and size > largest:
            yield at, f"preferred batch size {size} is larger than max_batch_size {largest}"


def _priority_mistakes(batching: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Triton's rules of priorities (triton-inference-server/core, src/model_config_utils.cc).

    Triton passes over policies of levels when there are no levels; a recipe that has them means something.
    """
    at = "dynamic_batching"
    levels, default = batching.get("priority_levels", 0), batching.get("default_priority_level", 0)
    if not all(isinstance(v, int) and not isinstance(v, bool) for v in (levels, default)):
        return
    if levels and not 1 <= default <= levels:
        yield (at, "default_priority_level"), f"must lie in 1 to {levels}, the priority levels, got {default}"
    policies = batching.get("priority_queue_policy")
    for key in policies if isinstance(policies, dict) else ():
        if str(key).isdigit() and not 1 <= int(key) <= levels:
            known = f"levels are 1 to {levels}" if levels else "priority_levels is not set"
            yield (at, "priority_queue_policy", key), f"there is no priority level {key}; {known}"
    if batching.get("preserve_ordering") is True and levels > 1:
        yield (at, "preserve_ordering"), "only one priority level is allowed when ordering is preserved"
    all_policies = [
        batching.get("default_queue_policy"),
        *(policies.values() if isinstance(policies, dict) else ()),
    ]
    delays = any(
        isinstance(p, dict) and p.get("timeout_action") == "DELAY" and p.get("default_timeout_microseconds")
        for p in all_policies
    )
    if batching.get("preserve_ordering") is True and delays:
        yield (at, "preserve_ordering"), "the timeout action DELAY is not allowed when ordering is preserved"


def _policy_mistakes(policy: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    latest = policy.get("latest") if isinstance(policy, dict) else None
    count = latest.get("num_versions") if isinstance(latest, dict) else None
    if isinstance(count, int) and not isinstance(count, bool) and count == 0:
        yield ("version_policy", "latest", "num_versions"), "no version would be served; must be at least 1"


def _group_mistakes(groups: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for index, group in enumerate(groups if isinstance(groups, list) else ()):
        if not isinstance(group, dict):
            continue
        at = ("instance_group", index)
        if group.get("kind") == "KIND_CPU" and group.get("gpus"):
            yield (*at, "gpus"), "instances of KIND_CPU have no GPUs"
        for key, what in (("passive", "passive instances"), ("secondary_devices", "secondary devices")):
            if group.get(key):
                yield (*at, key), f"the bundled server has no {what}"
        if group.get("profile"):
            yield (*at, "profile"), "only TensorRT models have profiles"
        count = group.get("count", 1)
        if isinstance(count, int) and not isinstance(count, bool) and count < 1:
            yield (*at, "count"), f"must be at least 1, got {count}; Triton takes its default then"


def _parameter_mistakes(parameters: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for key in WHOLE_NUMBERS if isinstance(parameters, dict) else ():
        value = parameters.get(key)
        text = value.get("string_value") if isinstance(value, dict) else None
        if isinstance(text, str) and not text.removeprefix("-").isdecimal():
            yield ("parameters", key, "string_value"), f"must be a whole number as text, got {text!r}"


def _level_mistakes(optimization: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    graph = optimization.get("graph") if isinstance(optimization, dict) else None
    level = graph.get("level") if isinstance(graph, dict) else None
    if isinstance(level, int) and not isinstance(level, bool) and level not in GRAPH_LEVELS:
        known = ", ".join(f"{number} ({word})" for number, word in GRAPH_LEVELS.items())
        yield ("optimization", "graph", "level"), f"must be one of {known}, got {level}"


_KINDS = {
    1: "a whole number",
    2: "a whole number",
    3: "a whole number of at least 0",
    4: "a whole number of at least 0",
    5: "a number",
    6: "a number",
    7: "true or false",
    9: "text",
}
"""What each protobuf ``FieldDescriptor.CPPTYPE_*`` takes, in words."""
_RANGES = {1: (-(2**31), 2**31), 2: (-(2**63), 2**63), 3: (0, 2**32), 4: (0, 2**64)}


def _scalar_fits(value: Any, field: Any) -> bool:
    kind = field.cpp_type
    if kind in _RANGES:
        low, high = _RANGES[kind]
        return isinstance(value, int) and not isinstance(value, bool) and low <= value < high
    if kind in (5, 6):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, bool) if kind == 7 else isinstance(value, str)


def _repeated(field: Any) -> bool:
    """Whether a field is a list; newer protobuf deprecates ``label`` for ``is_repeated``."""
    told = getattr(field, "is_repeated", None)
    return bool(told) if told is not None else field.label == field.LABEL_REPEATED
