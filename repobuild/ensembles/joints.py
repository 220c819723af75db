"""Types and shapes at the joints: what a step takes against what the steps before it make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from repobuild.ensembles.interface import Tensor, shown
from repobuild.errors import Evidence, InputInvalid
from repobuild.recipe.ensemble_types import Step
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.recipe.wiring import STEPS
from repobuild.tensors import Array, DType, TensorSpec


def joined(
    recipe: Recipe,
    step: Step,
    inputs: Iterable[TensorSpec],
    tensors: Mapping[str, Tensor],
    *,
    batched: bool,
) -> dict[str, Tensor]:
    """The tensors with what a step's inputs say about them.

    Args:
        recipe: The recipe of the ensemble.
        step: The step.
        inputs: Its inputs under its own names.
        tensors: Tensors of the ensemble by name.
        batched: Whether axis 0 holds the rows.

    Raises:
        InputInvalid: Types or dims differ, or what the samples made does not fit.
    """
    found = dict(tensors)
    for spec in inputs:
        if spec.name not in step.input_map:
            raise InputInvalid(
                "step-unjoined",
                f"its input '{spec.name}' is not in input_map",
                (recipe_evidence(recipe, (*STEPS, step.index, "input_map"), f"it takes {_names(inputs)}"),),
                "name a tensor of the ensemble for each input",
            )
        name = step.input_map[spec.name]
        have = found[name]
        place = (*STEPS, step.index, "input_map", spec.name)
        if have.spec is None:
            found[name] = replace(have, spec=replace(spec, name=name), maker=f"step '{step.name}'")
        else:
            why = _mismatch(have.spec, spec, batched=batched)
            if why:
                raise _unfit(
                    recipe,
                    place,
                    f"tensor '{name}' does not fit its input '{spec.name}': {why}",
                    f"{shown(have.spec, batched=batched)} by {have.maker},"
                    f" {shown(spec, batched=batched)} by step '{step.name}'",
                )
            if have.maker.startswith("step") and _is_input(recipe, name):
                found[name] = replace(have, spec=_narrower(have.spec, spec))
        trouble = misfit(found[name].values, spec)
        if trouble:
            raise _unfit(
                recipe, place, f"what tensor '{name}' holds does not fit its input '{spec.name}'", trouble
            )
    unknown = [k for k in step.input_map if k not in {s.name for s in inputs}]
    if unknown:
        place = (*STEPS, step.index, "input_map", unknown[0])
        raise InputInvalid(
            "step-unjoined",
            f"it has no input '{unknown[0]}'",
            (recipe_evidence(recipe, place, f"it takes {_names(inputs)}"),),
            "use the names of its inputs",
        )
    return found


def misfit(array: Array, spec: TensorSpec) -> str:
    """Why an array is no value of a tensor; empty when it is one."""
    kind = DType.of(array.dtype)
    if kind is not spec.dtype:
        return f"it is {kind.value}, and {spec.dtype.value} is taken"
    if array.ndim != len(spec.shape) or any(
        w is not None and w != h for w, h in zip(spec.shape, array.shape, strict=True)
    ):
        want = ["any" if d is None else d for d in spec.shape]
        return f"it has shape {list(array.shape)}, and [{', '.join(map(str, want))}] is taken"
    return ""


def _mismatch(made: TensorSpec, taken: TensorSpec, *, batched: bool) -> str:
    if made.dtype is not taken.dtype:
        texts = DType.BYTES in (made.dtype, taken.dtype)
        return "text and numbers are never converted" if texts else "the types differ"
    if len(made.shape) != len(taken.shape):
        axes = [len(s.dims(batched=batched)) for s in (made, taken)]
        return f"{axes[0]} axes are made, {axes[1]} are taken"
    for axis, (one, other) in enumerate(zip(made.shape, taken.shape, strict=True)):
        if None not in (one, other) and one != other:
            return f"axis {axis - batched} is {one}, and {other} is taken"
    return ""


def _narrower(one: TensorSpec, other: TensorSpec) -> TensorSpec:
    """An input that several steps take has the dims that all of them bear."""
    shape = tuple(o if s is None else s for s, o in zip(one.shape, other.shape, strict=True))
    return replace(one, shape=shape)


def _is_input(recipe: Recipe, name: str) -> bool:
    return recipe.ensemble is not None and name in recipe.ensemble.inputs


def _names(specs: Iterable[TensorSpec]) -> str:
    return ", ".join(s.name for s in specs)


def _unfit(recipe: Recipe, place: tuple[str | int, ...], message: str, text: str) -> InputInvalid:
    items: tuple[Evidence, ...] = (recipe_evidence(recipe, place, text),)
    return InputInvalid(
        "step-mismatch",
        message,
        items,
        "let the step before make what this one takes, or put a python step between them",
    )
