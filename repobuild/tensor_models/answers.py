"""What a recipe wants of a model's answers: which, how close, and the model's own."""

from __future__ import annotations

from collections.abc import Sequence

from repobuild.errors import InputInvalid
from repobuild.outputs import Wanted, wanted_outputs
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe, Tolerance
from repobuild.selection import Selection
from repobuild.tensor_models.axes import Ask, Axes
from repobuild.tensor_models.fit import TensorSamples
from repobuild.tensor_models.load import LoadedTensors, wanted_batch
from repobuild.tensor_models.reference import Asked, ask_all
from repobuild.torch_names import position


def graph_outputs(recipe: Recipe, model: LoadedTensors) -> tuple[tuple[Wanted, ...], list[str]]:
    """The outputs; an answer that is called as an input is gets ``_out`` behind its name."""
    inputs = {i.name for i in model.feed.inputs}
    if recipe.outputs:
        return wanted_outputs(recipe, model), []
    names = {}
    for answer in model.answers:
        name = answer
        while name in inputs or (name != answer and name in model.answers):
            name += "_out"
        names[answer] = name
    notes = [
        f"output '{answer}' is called '{name}', since an input has its name"
        for answer, name in names.items()
        if name != answer
    ]
    wanted = tuple(Wanted(name, Selection(answer)) for answer, name in names.items())
    refuse = [n for n in recipe.tolerance.by_output if n not in names.values()]
    if refuse:
        wanted_outputs(recipe, model)
    return wanted, notes


def script_outputs(recipe: Recipe, model: LoadedTensors) -> tuple[Wanted, ...]:
    """The outputs: ``<answer>__<index>``, as Triton's backend finds them, unless the recipe names them.

    Raises:
        InputInvalid: The recipe's own names would be taken for other outputs.
    """
    if recipe.outputs:
        wanted = wanted_outputs(recipe, model)
        numbers = [position(w.name) for w in wanted]
        if None not in numbers and numbers != list(range(len(numbers))):
            raise InputInvalid(
                "output-named-as-index",
                "Triton's PyTorch backend reads '__<number>' in a name as the output's position",
                (recipe_evidence(recipe, ("outputs",), ", ".join(w.name for w in wanted)),),
                f"name them in order, such as {', '.join(f'name__{i}' for i in range(len(wanted)))}",
            )
        return wanted
    plain = all("__" not in a and not a.endswith("_") for a in model.answers)
    wanted = tuple(
        Wanted(f"{answer if plain else 'OUTPUT'}__{index}", Selection(answer))
        for index, answer in enumerate(model.answers)
    )
    strange = [n for n in recipe.tolerance.by_output if n not in {w.name for w in wanted}]
    if strange:
        raise InputInvalid(
            "tolerance-unknown",
            f"tolerance: names '{strange[0]}', which is not an output",
            (
                recipe_evidence(
                    recipe, ("tolerance", strange[0]), f"outputs are {', '.join(w.name for w in wanted)}"
                ),
            ),
            "use the name of an output, or name the outputs yourself under outputs:",
        )
    return wanted


def tolerance_of(recipe: Recipe, model: LoadedTensors) -> Tolerance:
    """The recipe's, or what the model's own precision allows, in proportion to the size of the answers."""
    halves = {"float16", "bfloat16"} & set(model.facts.get("weights", ()))
    return recipe.tolerance.or_scaled(1e-2 if halves else None)


def ask_reference(
    ask: Ask,
    axes: Axes,
    samples: TensorSamples,
    wanted: Sequence[Wanted],
    tolerance: Tolerance,
    recipe: Recipe,
) -> Asked:
    """The model's own answers, see :func:`repobuild.tensor_models.reference.ask_all`.

    Raises:
        InputInvalid: The model refuses what it answered before, or a selection does not fit.
    """
    try:
        return ask_all(
            ask,
            axes,
            samples,
            wanted,
            tolerance,
            wants_batches=wanted_batch(recipe) > 0,
            keep_rows=recipe.labels is not None,
        )
    except IndexError as problem:
        texts = ", ".join(str(w.selection) for w in wanted)
        raise InputInvalid(
            "output-out-of-range",
            "an output takes a part that the model's answer does not have",
            (recipe_evidence(recipe, ("outputs",), f"{texts}: {problem}"),),
            "indexes count from 0, and the first axis holds the rows",
        ) from None
