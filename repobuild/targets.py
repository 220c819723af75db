"""What a recipe's ``targets:`` and ``target:`` mean for a build, decided before any model is touched."""

from __future__ import annotations

from repobuild.errors import EnvironmentLacking, InputInvalid
from repobuild.plugins import COMPILERS
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.planned import PLANNED
from repobuild.recipe.types import Recipe


def refuse_unmakeable(recipe: Recipe) -> None:
    """Make sure that every target can be made here.

    Raises:
        EnvironmentLacking: A compiler is not available.
        InputInvalid: A target has options that its compiler does not take, or there are several.
    """
    for index, target in enumerate(recipe.targets):
        place = recipe_evidence(recipe, ("targets", index), target.kind)
        if COMPILERS.find(target.kind) is None:
            raise EnvironmentLacking(
                "target-unavailable",
                f"the target '{target.kind}' cannot be made here",
                (recipe_evidence(recipe, ("targets", index), PLANNED[target.kind]),),
                "serve the ONNX model: targets: [onnxruntime]",
            )
        strange = sorted(target.options.keys() - set(getattr(COMPILERS.load(target.kind), "options", ())))
        if strange:
            raise InputInvalid(
                "target-options",
                f"the target '{target.kind}' takes no {', '.join(strange)}",
                (place,),
                "leave the option out",
            )
    if len(recipe.targets) > 1:
        raise InputInvalid(
            "target-options",
            "a recipe with several targets cannot be built yet",
            (recipe_evidence(recipe, ("targets",), ", ".join(t.kind for t in recipe.targets)),),
            "write one recipe a target, under names of their own",
        )
