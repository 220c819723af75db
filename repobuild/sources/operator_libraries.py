"""Libraries of custom operators that a recipe names for an ONNX file: vouched for, and copied."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from repobuild.artifact import Library, file_digest
from repobuild.errors import InputInvalid, from_oserror
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe

ENDING = ".so"
"""How a library is called where Triton runs."""

FOLDER = "operators"


def copy_libraries(recipe: Recipe, folder: Path) -> tuple[Library, ...]:
    """Copy the libraries, so that digest and load work on the same bytes.

    Args:
        recipe: The recipe; paths are relative to its folder.
        folder: Existing private folder.

    Raises:
        InputInvalid: A name is no library's, two have the same file name, or a file is missing.
        EnvironmentLacking: One cannot be copied.
    """
    names = recipe.source.custom_ops
    twice = {name for name, count in Counter(Path(n).name for n in names).items() if count > 1}
    for index, name in enumerate(names):
        place = ("source", "custom_ops", index)
        if not name.endswith(ENDING):
            raise InputInvalid(
                "option-unfit",
                f"'{name}' under custom_ops is no library of operators for ONNX Runtime",
                (recipe_evidence(recipe, place, f"the file's name must end with {ENDING}"),),
                "name the library that was compiled for Linux; Python modules are for scikit-learn models",
            )
        if Path(name).name in twice:
            raise InputInvalid(
                "option-unfit",
                f"two libraries under custom_ops are called {Path(name).name}",
                (recipe_evidence(recipe, place, name),),
                "give each a file name of its own, since a server finds them by it",
            )
        if not (recipe.folder / name).is_file():
            raise InputInvalid(
                "library-unusable",
                f"there is no library {name}",
                (recipe_evidence(recipe, place, "paths are relative to the recipe's folder"),),
                "write the path of the library as it is on this machine",
            )
    home = folder / FOLDER
    try:
        found = []
        for name in names:
            home.mkdir(exist_ok=True)
            copy = home / Path(name).name
            shutil.copyfile(recipe.folder / name, copy)
            found.append(Library(copy, file_digest(copy)))
        return tuple(found)
    except OSError as problem:
        raise from_oserror(problem, "copying a library of operators") from problem
