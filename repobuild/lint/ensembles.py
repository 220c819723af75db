"""Ensembles: steps, the tensors between them, and their members (ensemble_utils.cc)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from repobuild.lint.finding import Findings
from repobuild.lint.model import Model, View, enum_name, served_versions, text_list

NEWEST = -1
"""``model_version`` for the newest version; where it is not written it is 0, a version like any other."""


@dataclass(frozen=True, slots=True)
class Member:
    """A model as an ensemble sees it: its configuration after Triton's completion.

    Attributes:
        model: The model.
        config: ModelConfig message.
        inputs_known: Whether ``input`` is what Triton will have.
        outputs_known: Likewise ``output``.
        batch_known: Likewise ``max_batch_size``.
    """

    model: Model
    config: Any
    inputs_known: bool
    outputs_known: bool
    batch_known: bool


@dataclass(frozen=True, slots=True)
class _Seen:
    """Type and shape of an ensemble tensor, and the model they were taken from."""

    model: str
    kind: int
    dims: tuple[int, ...]
    full: tuple[int, ...]


def check_ensemble(
    model: Model, view: View, members: Mapping[str, Callable[[], Member | None]], findings: Findings
) -> None:
    """Check an ensemble.

    Args:
        model: The ensemble.
        view: Its configuration.
        members: Models of the repository by name; the call gives ``None`` where nothing is known.
        findings: Where findings go.
    """
    config = view.config
    is_ensemble = config.platform == "ensemble"
    if not config.HasField("ensemble_scheduling"):
        if is_ensemble:
            findings.add("ensemble-scheduling-missing", "an ensemble without steps", *view.where("platform"))
        return
    if not is_ensemble:
        findings.add(
            "ensemble-platform",
            f"ensemble scheduling cannot be set for model '{model.name}' whose platform is not ensemble",
            *view.where("ensemble_scheduling"),
        )
        return
    for name in ("instance_group", "optimization", "model_warmup"):
        if view.positions.has(name):
            findings.add("ensemble-field", f"{name} can not be specified for an ensemble", *view.where(name))
    steps = config.ensemble_scheduling.step
    if not steps:
        findings.add("ensemble-step-missing", "must specify 'step'", *view.where("ensemble_scheduling"))
        return
    if _check_maps(view, findings):
        _check_flow(view, findings)
    _check_members(model, view, members, findings)


def _step(index: int) -> tuple[str | int, ...]:
    return ("ensemble_scheduling", 0, "step", index)


def _check_maps(view: View, findings: Findings) -> bool:
    """Every step has a model and both maps."""
    whole = True
    for index, step in enumerate(view.config.ensemble_scheduling.step):
        for name in ("model_name", "input_map", "output_map"):
            if not getattr(step, name):
                whole = False
                findings.add(
                    "ensemble-map-missing",
                    f"must specify '{name}' in step {index}",
                    *view.where(*_step(index)),
                )
    return whole


def _check_flow(view: View, findings: Findings) -> None:
    """Who writes and reads each tensor (``BuildEnsembleGraph`` and what follows it)."""
    config, steps = view.config, view.config.ensemble_scheduling.step
    writers: dict[str, int] = {}
    for index, step in enumerate(steps):
        for key, name in sorted(step.output_map.items()):
            if name in writers:
                entry = view.positions.entry(key, *_step(index), "output_map")
                findings.add(
                    "ensemble-output-twice",
                    f"ensemble tensor '{name}' can appear in an output map only once",
                    *view.where(*entry, "value"),
                )
            writers.setdefault(name, index)
    given = {i.name for i in config.input}
    read = {name for step in steps for name in step.input_map.values()}
    for index, item in enumerate(config.input):
        if item.name not in read and item.name not in writers:
            findings.add(
                "ensemble-input-unused",
                f"ensemble input '{item.name}' is not used",
                *view.where("input", index, "name"),
            )
    for index, item in enumerate(config.output):
        if item.name not in writers:
            findings.add(
                "ensemble-output-unwritten",
                f"ensemble output '{item.name}' is not written",
                *view.where("output", index, "name"),
            )
    wanted = {o.name for o in config.output}
    for index, step in enumerate(steps):
        for key, name in sorted(step.input_map.items()):
            if name not in given and name not in writers:
                entry = view.positions.entry(key, *_step(index), "input_map")
                findings.add(
                    "ensemble-tensor-unused",
                    f"ensemble tensor '{name}' is written by no step",
                    *view.where(*entry, "value"),
                )
        for key, name in sorted(step.output_map.items()):
            if name not in wanted and name not in read:
                entry = view.positions.entry(key, *_step(index), "output_map")
                findings.add(
                    "ensemble-tensor-unused",
                    f"ensemble tensor '{name}' is unused",
                    *view.where(*entry, "value"),
                )
    _check_circle(view, writers, given, findings)


def _check_circle(view: View, writers: Mapping[str, int], given: set[str], findings: Findings) -> None:
    """Run steps whose inputs are there until none is left, as the scheduler does."""
    steps = view.config.ensemble_scheduling.step
    ready, waiting = set(given), set(range(len(steps)))
    while True:
        able = {
            i for i in waiting if all(n in ready or n not in writers for n in steps[i].input_map.values())
        }
        if not able:
            break
        waiting -= able
        ready |= {n for i in able for n in steps[i].output_map.values()}
    if waiting:
        first = min(waiting)
        findings.add(
            "ensemble-cycle",
            f"steps {text_list(str(i) for i in sorted(waiting))} wait for each other",
            *view.where(*_step(first)),
        )


def _check_members(
    model: Model, view: View, members: Mapping[str, Callable[[], Member | None]], findings: Findings
) -> None:
    config = view.config
    batched = config.max_batch_size > 0
    seen: dict[str, _Seen] = {}
    for kind, items in (("input", config.input), ("output", config.output)):
        for item in items:
            dims = tuple(item.reshape.shape) if item.HasField("reshape") else tuple(item.dims)
            if item.name and item.data_type and (dims or item.HasField("reshape")):
                seen.setdefault(item.name, _seen(f"{model.name} ({kind})", item.data_type, dims, batched))
    for index, step in enumerate(config.ensemble_scheduling.step):
        place = view.where(*_step(index), "model_name")
        if not step.model_name:
            continue
        if step.model_name == model.name:
            findings.add("ensemble-cycle", "the ensemble is a step of itself", *place)
            continue
        if step.model_namespace:
            continue
        if step.model_name not in members:
            findings.add(
                "ensemble-model-unknown",
                f"contains models that are not available: {step.model_name}",
                *place,
                evidence=[f"the repository has {text_list(sorted(set(members) - {model.name}))}"],
            )
            continue
        member = members[step.model_name]()
        if member is not None:
            _check_member(view, index, step, member, seen, findings)


def _check_member(
    view: View, index: int, step: Any, member: Member, seen: dict[str, _Seen], findings: Findings
) -> None:
    name, config = step.model_name, member.config
    at = _step(index)
    served = served_versions(member.model, config)
    if step.model_version != NEWEST and step.model_version not in served:
        findings.add(
            "ensemble-version-missing",
            f"depends on '{name}' whose required version {step.model_version} is not loaded",
            *view.where(*at, "model_version"),
            evidence=[f"it serves {text_list(map(str, served))}"],
        )
    if member.batch_known and 0 < config.max_batch_size < view.config.max_batch_size:
        findings.add(
            "ensemble-batch",
            f"allows maximum batch size {view.config.max_batch_size}, but contains model {name} which only "
            f"allows {config.max_batch_size}",
            *view.where("max_batch_size"),
        )
    sides = (
        ("input", step.input_map, config.input, member.inputs_known),
        ("output", step.output_map, config.output, member.outputs_known),
    )
    for kind, mapping, items, known in sides:
        tensors = {i.name: i for i in items}
        for key, target in sorted(mapping.items()):
            entry = view.positions.entry(key, *at, f"{kind}_map")
            if key in tensors:
                _check_tensor(view, member, tensors[key], target, entry, seen, findings)
            elif known:
                findings.add(
                    f"ensemble-member-{kind}",
                    f"ensemble tensor '{target}' maps to the non-existing {kind} '{key}' of model {name}",
                    *view.where(*entry, "key"),
                    evidence=[f"it has {text_list(sorted(tensors))}"],
                )
    if member.inputs_known and step.input_map:
        for item in config.input:
            if item.name not in step.input_map and not item.optional:
                findings.add(
                    "ensemble-member-unmapped",
                    f"input {item.name} of model {name} is not mapped to any ensemble tensor",
                    *view.where(*at, "input_map"),
                )


def _check_tensor(
    view: View,
    member: Member,
    item: Any,
    target: str,
    entry: tuple[str | int, ...],
    seen: dict[str, _Seen],
    findings: Findings,
) -> None:
    if not item.data_type or not item.dims:
        return
    here = _seen(
        member.model.name, item.data_type, tuple(item.dims), batched=member.config.max_batch_size > 0
    )
    other = seen.setdefault(target, here)
    if other.kind != here.kind:
        named = item.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
        findings.add(
            "ensemble-type",
            f"ensemble tensor '{target}': inconsistent data type: {named[other.kind].name} is inferred from "
            f"model {other.model} while {enum_name(item, 'data_type')} is inferred from model {here.model}",
            *view.where(*entry, "value"),
        )
    elif member.batch_known and not _alike(other.dims, here.dims) and not _alike(other.full, here.full):
        findings.add(
            "ensemble-shape",
            f"ensemble tensor '{target}': inconsistent shape: {list(other.full)} is inferred from model "
            f"{other.model} while {list(here.full)} is inferred from model {here.model}",
            *view.where(*entry, "value"),
        )


def _seen(model: str, kind: int, dims: tuple[int, ...], batched: bool) -> _Seen:
    return _Seen(model, kind, dims, (-1, *dims) if batched else dims)


def _alike(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(one, other, strict=True))
