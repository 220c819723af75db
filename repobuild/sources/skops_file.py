"""skops files: types that skops knows need no trust; others are named and must be vouched for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repobuild.errors import Evidence, InputInvalid, RepobuildError
from repobuild.recipe.types import Recipe
from repobuild.sources.interface import Trust
from repobuild.sources.made_with import blame_versions, mismatches
from repobuild.sources.model_file import ModelFile, copy_model, kind_mismatch
from repobuild.sources.rows_in_child import RowsInChild
from repobuild.sources.untrusted import shown, untrusted
from repobuild.sources.zips import Zip, ZipUnreadable

SCHEMA = "schema.json"
MAX_SCHEMA_BYTES = 1 << 27
MAX_TOTAL_BYTES = 1 << 34
"""Decompressed bytes of all members (16 GiB)."""


class SkopsSource(RowsInChild):
    """A scikit-learn model in a skops file.

    The archive is checked here, from outside. Its schema is read in the child process, by skops itself, which
    lists the types that it does not know; nothing of them is imported or run for that.

    Args:
        recipe: The recipe that names the file.
        folder: An existing private folder for the copy and for what the child writes.

    Raises:
        InputInvalid: The file is missing, empty, no skops file, or an archive that lies about itself.
        EnvironmentLacking: It cannot be read or copied.
    """

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        file = copy_model(recipe, folder / "model.skops")
        if file.content.kind != "skops":
            raise kind_mismatch(file.given, file.content, "skops")
        super().__init__(file.given, folder, file.path, "skops", file.digest)
        self._file = file
        self._schema: dict[str, Any] | None = None
        _check_archive(file)

    @property
    def kind(self) -> str:
        """``skops``."""
        return self._kind

    def vouch(self, trust: Trust) -> None:
        """Let a file pass whose types skops knows; for others a pin or ``--trust pickle`` must vouch.

        Raises:
            InputInvalid: skops cannot read it.
            EnvironmentLacking: skops is not installed.
            SourceUntrusted: It names types that skops does not know and nobody vouches for, or the pin names
                another file.
        """
        self._file.check_pin()
        types: list[str] = self._read_schema()["types"]
        if not types:
            return
        if self._file.pin is None and "pickle" not in trust.kinds:
            raise untrusted(
                self._file,
                "is a skops file with types that skops does not know: loading it imports and runs them",
                shown("loading it would import", types),
            )
        self._child().call("allow_types", types=types)

    def known_before(self) -> dict[str, Any]:
        """Types that skops does not know, and the versions that the file was made with."""
        schema = self._read_schema()
        return {"unknown_types": schema["types"], "trained_with": schema["versions"]}

    def notes_before(self) -> Sequence[str]:
        """Versions of scikit-learn that differ from the installed one."""
        return [f"{self._given}: {item}" for item in self._differing() if item.package == "scikit-learn"]

    def explain(self, problem: RepobuildError) -> RepobuildError:
        """An error of the child, with the versions that may be behind it."""
        return blame_versions(problem, self._differing())

    def _differing(self) -> Any:
        versions = self._schema["versions"] if self._schema else {}
        return mismatches({package: tuple(found) for package, found in versions.items()})

    def _read_schema(self) -> dict[str, Any]:
        if self._schema is None:
            self._schema = self._child().call("read_skops", path=str(self._model), given=self._given)
        return self._schema


def _check_archive(file: ModelFile) -> None:
    """Refuse an archive that lies, leads outside or is out of all proportion, before skops opens it."""
    troubles: list[str] = []
    try:
        with file.path.open("rb") as stream, Zip(stream) as archive:
            troubles.extend(archive.troubles)
            size = archive.size_of(SCHEMA)
            if size is not None and size > MAX_SCHEMA_BYTES:
                troubles.append(f"{SCHEMA} has {size} bytes, which is more than {MAX_SCHEMA_BYTES}")
            total = sum(m.size for m in archive.members)
            if total > MAX_TOTAL_BYTES:
                troubles.append(f"its members have {total} bytes together, more than {MAX_TOTAL_BYTES}")
    except ZipUnreadable as problem:
        troubles.append(str(problem))
    if troubles:
        raise InputInvalid(
            "archive-unsafe",
            f"{file.given} is an archive that is not opened: it is damaged, or made to do harm",
            tuple(Evidence(trouble, file=file.given) for trouble in troubles[:24]),
            "save the model again with skops.io.dump",
        )
