"""Whether the Python that verifies a step has the packages that the step says it needs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from repobuild.errors import EnvironmentLacking, Evidence, InputInvalid
from repobuild.recipe.ensemble_types import PythonStep
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.recipe.wiring import STEPS


def check_requirements(recipe: Recipe, step: PythonStep, file: Path) -> None:
    """Hold each line of a requirements file against what is installed; nothing is installed.

    Args:
        recipe: The recipe of the ensemble.
        step: The step.
        file: Its requirements: one specifier a line (PEP 508), comments, no options.

    Raises:
        InputInvalid: A line is no specifier.
        EnvironmentLacking: A package is missing, or has another version.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    missing, wrong = [], []
    text = file.read_bytes().decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        try:
            need = Requirement(words)
        except InvalidRequirement as problem:
            wrong.append(Evidence(f"{words!r}: {str(problem).splitlines()[0]}", file=file.name, line=number))
            continue
        if need.marker is not None and not need.marker.evaluate():
            continue
        try:
            have = version(need.name)
        except PackageNotFoundError:
            missing.append(Evidence(f"{words}: not installed", file=file.name, line=number))
            continue
        if not need.specifier.contains(have, prereleases=True):
            missing.append(Evidence(f"{words}: {have} is installed", file=file.name, line=number))
    place = recipe_evidence(recipe, (*STEPS, step.index, "python", "requirements"), file.name)
    if wrong:
        raise InputInvalid(
            "step-requirements",
            f"{file.name} has lines that name no package",
            (*wrong, place),
            "one package a line, such as numpy>=1.26; options of pip are not read",
        )
    if missing:
        raise EnvironmentLacking(
            "step-requirements-unmet",
            f"the packages of {file.name} are not all installed here, so the step cannot be run",
            (*missing, place),
            "pip install them where repobuild runs; the server's Python needs them too",
        )
