"""Many recipes at once: found below a folder, refused where two claim one name, built one after another."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from repobuild.build import NO_CHANGES, Changes, Order, Refused
from repobuild.envelope import error_document
from repobuild.errors import Evidence, InputInvalid, RepobuildError, from_oserror
from repobuild.pipeline import convert
from repobuild.recipe.load import RECIPE_FILE, load_recipe, recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.report import Report
from repobuild.sources.interface import Trust
from repobuild.watch import Silent, Watch

SUFFIX = f".{RECIPE_FILE}"

Result = Literal["new", "updated", "unchanged", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Found:
    """A recipe file that was found.

    Attributes:
        file: The file.
        recipe: The recipe, ``None`` when it is not usable.
        problem: Why it is not.
    """

    file: Path
    recipe: Recipe | None
    problem: RepobuildError | None = None


@dataclass(frozen=True, slots=True)
class Built:
    """What became of one recipe.

    Attributes:
        file: The recipe file.
        model: Model name, ``None`` when the recipe is not usable.
        result: ``new`` version, ``updated`` configuration of an equal one, ``unchanged`` repository,
            ``failed``, or ``skipped`` after a failure.
        report: What was found, ``None`` where nothing was.
        error: Why it failed.
    """

    file: Path
    model: str | None
    result: Result
    report: Report | None = None
    error: RepobuildError | None = None

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {
            "recipe": str(self.file),
            "model": self.model,
            "result": self.result,
            "version": self.report.version if self.report else None,
            "report": self.report.to_dict() if self.report else None,
            "error": error_document(self.error) if self.error else None,
        }


def find_recipes(path: Path) -> tuple[Path, ...]:
    """Recipe files below a folder, sorted by path; hidden folders and links to folders are left out.

    Args:
        path: A folder, or one recipe file.

    Raises:
        InputInvalid: There is none.
        EnvironmentLacking: A folder cannot be read.
    """
    if path.is_file():
        return (path,)
    if not path.is_dir():
        raise _none(path, "no such folder")
    found: list[Path] = []
    try:
        for folder, inner, names in os.walk(path, onerror=_raise):
            inner[:] = sorted(n for n in inner if not n.startswith("."))
            found.extend(
                Path(folder) / n
                for n in names
                if n == RECIPE_FILE or (n.endswith(SUFFIX) and not n.startswith("."))
            )
    except OSError as problem:
        raise from_oserror(problem, "looking for recipes") from problem
    if not found:
        raise _none(path, f"neither {RECIPE_FILE} nor *{SUFFIX} lies in it or below")
    return tuple(sorted(found))


def load_recipes(files: Sequence[Path]) -> tuple[Found, ...]:
    """Load recipes; one that is not usable does not keep the others from being loaded.

    Raises:
        InputInvalid: Two of them have one model name, or names that differ in case only.
    """
    found = []
    for file in files:
        try:
            found.append(Found(file, load_recipe(file)))
        except RepobuildError as problem:
            found.append(Found(file, None, problem))
    _refuse_clashes(found)
    return tuple(found)


def build_all(
    found: Sequence[Found],
    repository: Path,
    trust: Trust,
    watch: Watch | None = None,
    *,
    fail_fast: bool = False,
    beginning: Callable[[Found], None] = lambda _: None,
    changes: Changes = NO_CHANGES,
) -> Iterator[Built]:
    """Build recipes one after another.

    Args:
        found: The recipes.
        repository: The Triton model repository to build into.
        trust: What the user vouches for.
        watch: Told of the steps.
        fail_fast: Skip what follows a failure.
        beginning: Called before each.
        changes: What may change in the repository beside the new versions.
    """
    failed = False
    for item in found:
        model = item.recipe.name if item.recipe else None
        if failed and fail_fast:
            yield Built(item.file, model, "skipped")
            continue
        beginning(item)
        built = build_one(item, repository, trust, watch, changes)
        failed = failed or built.result == "failed"
        yield built


def build_one(
    item: Found,
    repository: Path,
    trust: Trust,
    watch: Watch | None = None,
    changes: Changes = NO_CHANGES,
    *,
    bisect: bool = False,
) -> Built:
    """Build one recipe; an error is part of the answer.

    Args:
        item: The recipe, or why there is none.
        repository: The Triton model repository to build into.
        trust: What the user vouches for.
        watch: Told of the steps.
        changes: What may change in the repository beside the new version.
        bisect: Whether a failed check names the first node where the artifact departs.
    """
    if item.recipe is None:
        return Built(item.file, None, "failed", error=item.problem)
    try:
        report = convert(Order(item.recipe, repository, trust, changes, bisect), watch or Silent())
    except Refused as refused:
        return Built(item.file, item.recipe.name, "failed", refused.report, refused.error)
    except RepobuildError as error:
        return Built(item.file, item.recipe.name, "failed", error=error)
    return Built(item.file, item.recipe.name, _result(report), report)


def _result(report: Report) -> Result:
    if not report.changed:
        return "unchanged"
    return "new" if report.new_version else "updated"


def _refuse_clashes(found: Sequence[Found]) -> None:
    """Two recipes of one name would build into one folder, in turn; so would names that differ in case."""
    by_name: dict[str, list[Recipe]] = defaultdict(list)
    for item in found:
        if item.recipe is not None:
            by_name[item.recipe.name.casefold()].append(item.recipe)
    clashes = [recipes for recipes in by_name.values() if len(recipes) > 1]
    if clashes:
        raise InputInvalid(
            "model-name-clash",
            "several recipes have one model name; nothing was built",
            tuple(recipe_evidence(r, ("name",), f"'{r.name}'") for recipes in clashes for r in recipes),
            "names must differ in more than case, so that any file system can hold the repository",
        )


def _none(path: Path, why: str) -> InputInvalid:
    return InputInvalid(
        "recipes-missing",
        f"there are no recipes in {path}",
        (Evidence(why, file=str(path)),),
        f"name a folder with files called {RECIPE_FILE} or *{SUFFIX}",
    )


def _raise(problem: OSError) -> None:
    raise problem
