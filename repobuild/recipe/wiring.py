"""How the steps of an ensemble hang together: who makes and who takes each tensor, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from repobuild.recipe.yamlfile import KeyPath

STEPS = ("ensemble", "steps")


@dataclass(frozen=True, slots=True)
class Joint:
    """One step, as far as the wiring goes.

    Attributes:
        name: Name of the step.
        model: Its model in the repository.
        takes: Tensor of the ensemble by input.
        makes: Tensor of the ensemble by output.
        said: Outputs whose tensor the recipe names, so that somebody must take it.
    """

    name: str
    model: str
    takes: Mapping[str, str]
    makes: Mapping[str, str]
    said: frozenset[str]


@dataclass(frozen=True, slots=True)
class Wiring:
    """The whole.

    Attributes:
        order: Places of the steps, each after those that make what it takes.
        inputs: Tensors that a client sends.
        outputs: Tensors that it gets.
    """

    order: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def wire(joints: Sequence[Joint], inputs: Sequence[str], outputs: Sequence[str]) -> Wiring:
    """Order the steps and find the ends.

    Args:
        joints: The steps, free of the mistakes that :func:`wiring_mistakes` tells.
        inputs: Inputs that the recipe lists, empty for what no step makes.
        outputs: Outputs that it lists, empty for what no step takes.
    """
    made = _makers(joints)
    taken = dict.fromkeys(t for j in joints for t in j.takes.values())
    order, _ = _ordered(joints, made)
    return Wiring(
        tuple(order),
        tuple(inputs) or tuple(t for t in taken if t not in made),
        tuple(outputs) or tuple(t for t in made if t not in taken),
    )


def wiring_mistakes(
    ensemble: str, joints: Sequence[Joint], inputs: Sequence[str], outputs: Sequence[str]
) -> Iterator[tuple[KeyPath, str]]:
    """Every mistake, with the key path of its place."""
    yield from _name_mistakes(ensemble, joints)
    makers: dict[str, str] = {}
    for index, joint in enumerate(joints):
        for key, tensor in joint.makes.items():
            at = (*STEPS, index, "output_map", key)
            if tensor in makers:
                yield at, f"tensor '{tensor}' is made by step '{makers[tensor]}' already"
            elif tensor in inputs:
                yield at, f"tensor '{tensor}' is an input of the ensemble, so no step can make it"
            makers.setdefault(tensor, joint.name)
        for tensor in sorted(set(joint.takes.values()) & set(joint.makes.values())):
            yield (*STEPS, index), f"step '{joint.name}' takes '{tensor}', which it makes itself"
    taken = {t for j in joints for t in j.takes.values()}
    for place, tensor in enumerate(inputs):
        if tensor not in taken and tensor not in makers:
            yield ("ensemble", "inputs", place), f"input '{tensor}' is taken by no step"
    for place, tensor in enumerate(outputs):
        if tensor not in makers:
            yield ("ensemble", "outputs", place), f"output '{tensor}' is made by no step"
    if inputs:
        for index, joint in enumerate(joints):
            for key, tensor in joint.takes.items():
                if tensor not in makers and tensor not in inputs:
                    yield (
                        (*STEPS, index, "input_map", key),
                        f"tensor '{tensor}' is made by no step and is no input of the ensemble",
                    )
    elif taken and taken <= makers.keys():
        yield STEPS, "no tensor comes from the client: the steps make all that they take"
    for index, joint in enumerate(joints):
        if outputs and not taken & {*joint.makes.values()} and not {*outputs} & {*joint.makes.values()}:
            yield (*STEPS, index), f"nothing that step '{joint.name}' makes is taken by a step or an output"
        for key, tensor in joint.makes.items():
            if outputs and key in joint.said and tensor not in taken and tensor not in outputs:
                yield (
                    (*STEPS, index, "output_map", key),
                    f"tensor '{tensor}' is taken by no step and is no output of the ensemble",
                )
    if not outputs and makers and makers.keys() <= taken:
        yield STEPS, "no tensor goes to the client: each is taken by a step; name some under outputs:"
    _, stuck = _ordered(joints, _makers(joints))
    if stuck:
        names = ", ".join(f"'{joints[i].name}'" for i in stuck)
        yield (*STEPS, stuck[0]), f"steps {names} wait for each other"


def _name_mistakes(ensemble: str, joints: Sequence[Joint]) -> Iterator[tuple[KeyPath, str]]:
    for what in ("name", "model"):
        seen: dict[str, str] = {ensemble.casefold(): "the ensemble"} if what == "model" else {}
        for index, joint in enumerate(joints):
            name: str = getattr(joint, what)
            if name.casefold() in seen:
                yield (
                    (*STEPS, index, what),
                    f"{what} '{name}' is that of {seen[name.casefold()]}; they must differ in more than case",
                )
            seen.setdefault(name.casefold(), f"step '{joint.name}'")


def _makers(joints: Sequence[Joint]) -> dict[str, int]:
    return {tensor: index for index, joint in enumerate(joints) for tensor in joint.makes.values()}


def _ordered(joints: Sequence[Joint], made: Mapping[str, int]) -> tuple[list[int], list[int]]:
    """Places of the steps in an order that works, and those that wait for each other."""
    order: list[int] = []
    waiting = list(range(len(joints)))
    while able := [i for i in waiting if all(made.get(t) not in waiting for t in joints[i].takes.values())]:
        order.extend(able)
        waiting = [i for i in waiting if i not in able]
    return order, waiting
