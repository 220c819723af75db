"""What a recipe's ``targets:`` and ``target:`` mean for a build, decided before any model is touched."""

from __future__ import annotations

from collections.abc import Mapping

from repobuild.errors import EnvironmentLacking, InputInvalid
from repobuild.plugins import COMPILERS
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe

PLANNED: Mapping[str, str] = {
    "tensorrt": "TensorRT is not available here: this release of repobuild has no compiler for it, which"
    " would also need TensorRT installed and an NVIDIA GPU",
    "tensorrt-rtx": "TensorRT-RTX is not available here: this release of repobuild has no compiler for it",
    "openvino": "OpenVINO is not available here: this release of repobuild has no compiler for it",
}
"""Targets that the recipe format knows and that no registered compiler makes yet, with what to say."""


def refuse_unmakeable(recipe: Recipe) -> None:
    """Make sure that every target can be made here.

    Raises:
        EnvironmentLacking: A compiler is not available.
        InputInvalid: A target has options that its compiler does not take, or there are several.
    """
    for index, target in enumerate(recipe.targets):
        place = recipe_evidence(recipe, ("targets", index), f"targets: {target.kind}")
        if COMPILERS.find(target.kind) is None:
            raise EnvironmentLacking(
                "target-unavailable",
                f"the target '{target.kind}' cannot be made here",
                (recipe_evidence(recipe, ("targets", index), PLANNED[target.kind]),),
                "serve the ONNX model: targets: [onnxruntime]",
            )
        if target.options:
            raise InputInvalid(
                "target-options",
                f"the target '{target.kind}' takes no {', '.join(sorted(target.options))}",
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
