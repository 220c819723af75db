"""The private copy of a model file, on which digest, scan and load all work."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from repobuild.artifact import file_digest
from repobuild.errors import Evidence, InputInvalid, SourceUntrusted, from_oserror
from repobuild.recipe.types import Recipe
from repobuild.sources.containers import read_head, refuse_strangers
from repobuild.sources.content import Content, content_of


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A copy of a model file that nobody else changes.

    Attributes:
        path: The copy.
        given: The path as the recipe has it.
        head: Its first bytes.
        digest: Its sha256, hexadecimal.
        content: What it holds.
        pin: The digest that the recipe pins, if any.
    """

    path: Path
    given: str
    head: bytes
    digest: str
    content: Content
    pin: str | None

    def check_pin(self) -> None:
        """Refuse a file that is not the pinned one; no word on the command line overrides that.

        Raises:
            SourceUntrusted: The pin names another file.
        """
        if self.pin is not None and self.pin != self.digest:
            raise SourceUntrusted(
                "pin-mismatch",
                f"{self.given} is not the file that the recipe pins",
                (
                    Evidence(f"sha256 of the file is {self.digest}", file=self.given),
                    Evidence(f"the recipe pins {self.pin}", key="source.sha256"),
                ),
                "if the model was trained again on purpose, put its new digest into the recipe",
            )


def copy_model(recipe: Recipe, to: Path) -> ModelFile:
    """Copy the recipe's model file, and look at the copy.

    Raises:
        InputInvalid: It is missing, empty, or plainly something else.
        EnvironmentLacking: It cannot be read or copied.
    """
    given = recipe.source.given
    refuse_strangers(read_head(recipe.source.path, given), given)
    try:
        shutil.copyfile(recipe.source.path, to)
        head = read_head(to, given)
        return ModelFile(to, given, head, file_digest(to), content_of(to), recipe.source.sha256)
    except OSError as problem:
        raise from_oserror(problem, "copying the model file") from problem


def kind_mismatch(given: str, content: Content, wanted: str) -> InputInvalid:
    """The error for a file that is something else than the recipe says."""
    return InputInvalid(
        "kind-mismatch",
        f"{given} is {content.what}, and the recipe says that its kind is {wanted}",
        (Evidence(f"kind: {wanted} in the recipe", file=given, key="source.kind"),),
        "leave kind out, and it is found from the file's content",
    )
