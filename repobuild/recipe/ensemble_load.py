"""From a checked recipe of an ensemble to what the pipeline sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repobuild.errors import RepobuildError
from repobuild.recipe.ensemble_types import (
    AnyStep,
    DeclaredTensor,
    EnsembleRecipe,
    ModelStep,
    PythonStep,
)
from repobuild.recipe.wiring import STEPS, Joint, wire, wiring_mistakes
from repobuild.recipe.yamlfile import KeyPath
from repobuild.tensors import DType

if TYPE_CHECKING:
    from repobuild.recipe.ensemble_schema import EnsembleDocument, PythonSection, StepSection
    from repobuild.recipe.types import Recipe

OWN_FILES = ("model.py", "step.json")
"""Names in the version folder of a python step that repobuild writes itself."""

LEFT_TO_THE_ENSEMBLE = ("version_policy", "max_batch_size")


def ensemble_mistakes(
    document: EnsembleDocument, recipes: Mapping[int, Recipe | RepobuildError]
) -> Iterator[tuple[KeyPath, str]]:
    """Every mistake that needs more than one key, with its key path.

    Args:
        document: The recipe.
        recipes: The recipe of each step that has one, or why it is not usable, by place.
    """
    from repobuild.serving import serving_mistakes

    section = document.ensemble
    for index, step in enumerate(section.steps):
        if step.python is not None:
            yield from _python_mistakes(step.python, (*STEPS, index, "python"))
            yield from _map_mistakes(step, step.python, index)
            for at, text in serving_mistakes(step.serving):
                yield (*STEPS, index, "serving", *at), text
            for key in LEFT_TO_THE_ENSEMBLE:
                if key in step.serving:
                    yield (*STEPS, index, "serving", key), "the ensemble decides it for all its steps"
        else:
            yield from _recipe_mistakes(recipes[index], index)
    joints = _joints(document)
    yield from wiring_mistakes(document.name, joints, section.inputs, section.outputs)


def ensemble_of(document: EnsembleDocument, folder: Path, recipes: Mapping[int, Recipe]) -> EnsembleRecipe:
    """The ensemble that a recipe without mistakes describes.

    Args:
        document: The recipe.
        folder: Folder that its paths are relative to, absolute.
        recipes: The recipe of each step that has one, by place.
    """
    section = document.ensemble
    joints = _joints(document)
    wiring = wire(joints, section.inputs, section.outputs)
    used = {t for j in joints for t in j.takes.values()} | set(wiring.outputs)
    steps = [
        _step(section.steps[index], joints[index], index, folder, recipes, used) for index in wiring.order
    ]
    return EnsembleRecipe(
        tuple(steps),
        wiring.inputs,
        wiring.outputs,
        None if document.expected is None else folder / document.expected,
        document.expected or "",
    )


def _step(
    item: StepSection,
    joint: Joint,
    index: int,
    folder: Path,
    recipes: Mapping[int, Recipe],
    used: set[str],
) -> AnyStep:
    makes = {key: tensor for key, tensor in joint.makes.items() if tensor in used}
    if item.python is None:
        return ModelStep(item.name, joint.model, index, joint.takes, makes, recipes[index])
    python = item.python
    inputs, outputs = (
        tuple(DeclaredTensor(t.name, DType(t.dtype), tuple(t.dims)) for t in side)
        for side in (python.inputs, python.outputs)
    )
    return PythonStep(
        name=item.name,
        model=joint.model,
        index=index,
        input_map=joint.takes,
        output_map=makes,
        file=folder / python.file,
        given=python.file,
        function=python.function,
        inputs=inputs,
        outputs=outputs,
        files=tuple(folder / f for f in python.files),
        parameters=python.parameters,
        requirements=None if python.requirements is None else folder / python.requirements,
        serving=item.serving,
    )


def _joints(document: EnsembleDocument) -> list[Joint]:
    joints = []
    for step in document.ensemble.steps:
        takes, makes = dict(step.input_map), dict(step.output_map)
        if step.python is not None:
            takes = {t.name: step.input_map.get(t.name, t.name) for t in step.python.inputs}
            makes = {t.name: step.output_map.get(t.name, t.name) for t in step.python.outputs}
        model = step.model or f"{document.name}_{step.name}"
        joints.append(Joint(step.name, model, takes, makes, frozenset(step.output_map)))
    return joints


def _map_mistakes(step: StepSection, python: PythonSection, index: int) -> Iterator[tuple[KeyPath, str]]:
    for what, mapping, tensors in (
        ("input", step.input_map, python.inputs),
        ("output", step.output_map, python.outputs),
    ):
        known = [t.name for t in tensors]
        for key in mapping:
            if key not in known:
                yield (
                    (*STEPS, index, f"{what}_map", key),
                    f"the step has no {what} '{key}'; it has {', '.join(known)}",
                )


def _python_mistakes(python: PythonSection, at: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    from repobuild.recipe.ensemble_schema import plain_file

    for side in ("inputs", "outputs"):
        names = [t.name for t in getattr(python, side)]
        for place, name in enumerate(names):
            if name in names[:place]:
                yield (*at, side, place, "name"), f"'{name}' is used twice; tensor names must differ"
    if Path(python.file).suffix != ".py":
        yield (*at, "file"), f"must be a python file (.py), got {python.file}"
    taken: dict[str, str] = {name.casefold(): "repobuild's own" for name in OWN_FILES}
    named: list[tuple[KeyPath, str]] = [((*at, "file"), python.file)]
    named.extend(((*at, "files", i), f) for i, f in enumerate(python.files))
    if python.requirements is not None:
        named.append(((*at, "requirements"), python.requirements))
    for key, given in named:
        name = Path(given).name
        if not plain_file(name):
            yield key, f"'{name}' is no plain file name: letters, digits, '_', '-' and '.', not '.' first"
        elif name.casefold() in taken:
            yield key, f"the name {name} is {taken[name.casefold()]} in the folder of the step"
        taken.setdefault(name.casefold(), "that of another file")
    trouble = _not_json(python.parameters)
    if trouble:
        yield (*at, "parameters"), trouble


def _not_json(value: Any) -> str:
    import json

    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as problem:
        return f"must be values that JSON has: {problem}"
    return ""


def _recipe_mistakes(recipe: Recipe | RepobuildError, index: int) -> Iterator[tuple[KeyPath, str]]:
    at = (*STEPS, index, "recipe")
    if isinstance(recipe, RepobuildError):
        yield at, f"is not usable: {recipe.message}"
        for item in recipe.evidence:
            yield at, item.render().strip()
        return
    if recipe.ensemble is not None:
        yield at, "is an ensemble itself; name its steps here"
    if recipe.labels is not None:
        yield at, "has labels:, which belong to samples of its own; build it alone to measure accuracy"
    if recipe.budget.accuracy_drop is not None:
        yield at, "has budget: accuracy_drop, which needs labels; build it alone to measure accuracy"
    if "version_policy" in recipe.serving:
        yield at, "has serving: version_policy; the ensemble decides which version of a step is served"
