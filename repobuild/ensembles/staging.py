"""Stages the models of an ensemble: version folders, pinned versions, configurations."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from repobuild.build import Changes, Order
from repobuild.compilers.interface import Compiler
from repobuild.emit import warmup
from repobuild.emit.config import CONFIG_FILE, complete_serving, render_config, same_interface, sealed
from repobuild.emit.labels import make_labels
from repobuild.emit.libraries import place_libraries
from repobuild.emit.model import CLASSES, Emission
from repobuild.emit.owners import ensemble_of
from repobuild.emit.versions import Existing, equal_version, look, next_version
from repobuild.emit.workshop import Workshop
from repobuild.ensembles.functions import write_version
from repobuild.ensembles.interface import Made, Placed, Tensor
from repobuild.ensembles.models import MadeModel
from repobuild.errors import Evidence, InputInvalid, evidence, from_oserror
from repobuild.plugins import COMPILERS
from repobuild.recipe.ensemble_types import PythonStep, Step
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.recipe.wiring import STEPS
from repobuild.serving import serving_config
from repobuild.tensors import Signature, TensorSpec
from repobuild.triton import format_config, model_config, parse_config

DESCRIPTION = "ensemble.json"
"""What the version folder of an ensemble holds, since object stores keep no empty folders."""

STAGED = "staged"
SHOWN_LINES = 80


def refuse_taken(order: Order, state: Path, repository: Path) -> None:
    """Make sure that the names are free, or belong to this very ensemble.

    Raises:
        InputInvalid: Another model has one of them.
    """
    recipe = order.recipe
    assert recipe.ensemble is not None
    names: list[tuple[str, tuple[str | int, ...]]] = [
        (s.model, (*STEPS, s.index, "name")) for s in recipe.ensemble.steps
    ]
    for name, place in (*names, (recipe.name, ("name",))):
        if look(repository, name) is None:
            continue
        owner = ensemble_of(state, name)
        if owner != recipe.name:
            whose = f"it belongs to the ensemble '{owner}'" if owner else "it is a model of its own"
            raise InputInvalid(
                "ensemble-name-taken",
                f"the repository has a model '{name}' that is not of the ensemble '{recipe.name}'",
                (recipe_evidence(recipe, place, whose),),
                "give the step another model: name, or the ensemble another name",
            )


def stage_function(order: Order, made: Made, folder: Path, shop: Workshop) -> Placed:
    """Stage a python step.

    Args:
        order: What is being built.
        made: The step, built and asked.
        folder: Private folder with its files.
        shop: The workshop.
    """
    step = made.step
    assert isinstance(step, PythonStep)
    largest = int(order.recipe.serving["max_batch_size"])

    def render(version: int) -> tuple[str, Mapping[str, bytes], Mapping[str, bytes]]:
        serving = serving_config(step.serving)
        if not serving.instance_group:
            group = serving.instance_group.add()
            group.count, group.kind = 1, type(group).KIND_CPU
        serving.version_policy.specific.versions.append(version)
        signature = Signature(made.inputs, made.outputs, largest > 0)
        nothing = warmup.Warmup((), {})
        return render_config(step.model, "python", signature, serving, largest, nothing), {}, {}

    staged = shop.models / step.model / STAGED
    try:
        write_version(order.recipe.name, step, folder, staged)
    except OSError as problem:
        raise from_oserror(problem, "writing the staged step") from problem
    return _place(order.changes, shop, step.model, Signature(made.inputs, made.outputs, largest > 0), render)


def stage_model(order: Order, model: MadeModel, shop: Workshop) -> Placed:
    """Stage a model step.

    Args:
        order: What is being built.
        model: The step; its artifact is moved.
        shop: The workshop.
    """
    graph, artifact = model.graph, model.artifact
    name = model.made.step.model
    compiler: Compiler = COMPILERS.load(artifact.kind)()

    def render(version: int) -> tuple[str, Mapping[str, bytes], Mapping[str, bytes]]:
        serving = complete_serving(
            model.recipe.serving,
            batched=artifact.signature.batched,
            cpu_only=True,
            parameters=compiler.parameters,
        )
        serving.version_policy.specific.versions.append(version)
        placed = place_libraries(serving, artifact.libraries)
        model.made.ledger.found_notes(placed.notes)
        for output, names in graph.classes.items():
            listed = json.dumps(list(names), ensure_ascii=False)
            serving.parameters[f"{CLASSES}{output}"].string_value = listed
        warm = warmup.make_warmup(artifact.signature, graph.warm, graph.max_batch_size)
        texts = make_labels(graph.labels)
        text = render_config(
            name, compiler.backend, artifact.signature, serving, graph.max_batch_size, warm, texts.by_output
        )
        shipped = {file: path.read_bytes() for file, path in placed.files.items()}
        return text, warm.files, {**texts.files, **shipped}

    staged = shop.models / name / STAGED
    try:
        staged.mkdir(parents=True)
        for file in artifact.files:
            file.rename(staged / file.name)
    except OSError as problem:
        raise from_oserror(problem, "writing the staged model") from problem
    placed = _place(order.changes, shop, name, artifact.signature, render)
    return replace(placed, emission=replace(placed.emission, libraries=artifact.libraries))


def stage_ensemble(
    order: Order, shop: Workshop, members: Sequence[tuple[Step, Placed]], tensors: Mapping[str, Tensor]
) -> Placed:
    """Stage the ensemble itself, whose steps name the versions that were staged.

    Args:
        order: What is being built.
        shop: The workshop.
        members: Its steps in order, each with its staged model.
        tensors: Its tensors.
    """
    recipe = order.recipe
    assert recipe.ensemble is not None
    batched = int(recipe.serving["max_batch_size"]) > 0
    ends = (recipe.ensemble.inputs, recipe.ensemble.outputs)
    inputs, outputs = (tuple(_spec(tensors, name) for name in side) for side in ends)
    signature = Signature(inputs, outputs, batched)
    steps = [
        {
            "name": step.name,
            "model": step.model,
            "version": placed.emission.version,
            "input_map": dict(step.input_map),
            "output_map": dict(step.output_map),
        }
        for step, placed in members
    ]
    staged = shop.models / recipe.name / STAGED
    try:
        staged.mkdir(parents=True)
        text = json.dumps({"format": 1, "steps": steps}, indent=1, sort_keys=True, ensure_ascii=False)
        (staged / DESCRIPTION).write_text(text + "\n", encoding="utf-8")
    except OSError as problem:
        raise from_oserror(problem, "writing the staged ensemble") from problem

    def render(_: int) -> tuple[str, Mapping[str, bytes], Mapping[str, bytes]]:
        return sealed(format_config(_ensemble_config(recipe, signature, steps))), {}, {}

    return _place(order.changes, shop, recipe.name, signature, render)


def _spec(tensors: Mapping[str, Tensor], name: str) -> TensorSpec:
    spec = tensors[name].spec
    assert spec is not None
    return spec


def _ensemble_config(recipe: Recipe, signature: Signature, steps: Sequence[Mapping[str, Any]]) -> Any:
    message = model_config()
    message.MergeFrom(serving_config(recipe.serving))
    message.name, message.platform = recipe.name, "ensemble"
    for side, specs in ((message.input, signature.inputs), (message.output, signature.outputs)):
        for spec in specs:
            item = side.add()
            item.name = spec.name
            item.data_type = (
                item.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_name[spec.dtype.config].number
            )
            item.dims.extend(spec.dims(batched=signature.batched))
    for step in steps:
        entry = message.ensemble_scheduling.step.add()
        entry.model_name, entry.model_version = step["model"], step["version"]
        for key, tensor in step["input_map"].items():
            entry.input_map[key] = tensor
        for key, tensor in step["output_map"].items():
            entry.output_map[key] = tensor
    return message


_Rendered = tuple[str, Mapping[str, bytes], Mapping[str, bytes]]


def _place(
    changes: Changes, shop: Workshop, model: str, signature: Signature, render: Callable[[int], _Rendered]
) -> Placed:
    """Give the staged version its number, and write the configuration that names it."""
    home, folder = shop.repository / model, shop.models / model
    existing = look(shop.repository, model)
    same = equal_version(home, existing, folder / STAGED)
    version = next_version(existing, shop.state, model) if same is None else same
    text, warm, labels = render(version)
    notes = _settled(existing, text, home, changes)
    beside = {**{f"{warmup.FOLDER}/{n}": data for n, data in warm.items()}, **labels}
    try:
        (folder / STAGED).rename(folder / str(version))
        for name, data in beside.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
        (folder / CONFIG_FILE).write_text(text, encoding="utf-8")
        lacking = any(not (home / n).is_file() or (home / n).read_bytes() != d for n, d in beside.items())
    except OSError as problem:
        raise from_oserror(problem, "writing the staged model") from problem
    config = parse_config(text, CONFIG_FILE)
    named = {o.name for o in config.output}
    served = tuple(o for o in signature.outputs if o.name in named)
    emission = Emission(
        folder=folder,
        version=version,
        signature=Signature(signature.inputs, served, signature.batched),
        config=config,
        config_text=text,
        kept=False,
        warmup_files=tuple(sorted(warm)),
        existing=existing,
        notes=notes,
    )
    changed = existing is None or existing.text != text
    return Placed(model, emission, new_version=same is None, new_config=changed or lacking)


def _settled(existing: Existing | None, text: str, home: Path, changes: Changes) -> tuple[str, ...]:
    """Whether the configuration may become the new one.

    Raises:
        InputInvalid: Inputs or outputs differ from those before, or the user edited it.
    """
    if existing is None or existing.text is None or existing.text == text:
        return ()
    file = home / CONFIG_FILE
    old, new = parse_config(existing.text, file), parse_config(text, CONFIG_FILE)
    differ = same_interface(old, new) if existing.versions else []
    if differ and not changes.schema:
        raise InputInvalid(
            "schema-changed",
            f"the new version of '{new.name}' has other inputs or outputs than version"
            f" {existing.versions[-1]}",
            evidence(differ),
            "Triton has one configuration for all versions of a model: give the step another model: name, or"
            " pass --allow-schema-change",
        )
    if not existing.ours and not changes.config:
        lines = difflib.unified_diff(
            existing.text.splitlines(), text.splitlines(), "config.pbtxt", "wanted", lineterm=""
        )
        raise InputInvalid(
            "config-edited",
            f"the config.pbtxt of '{new.name}' was written or edited by hand",
            (
                Evidence("an ensemble pins the versions of its steps in these files", file=str(file)),
                Evidence("\n".join(list(lines)[:SHOWN_LINES])),
            ),
            "say what is wanted under serving: of the recipe, and pass --update-config to replace the file",
        )
    notes = [f"inputs or outputs of '{new.name}' differ from those before: {d}" for d in differ]
    if not existing.ours:
        notes.append(f"config.pbtxt of '{new.name}' was edited by hand, and is replaced")
    return tuple(notes)
