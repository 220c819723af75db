"""joblib and pickle files: scanned before anything runs, loaded only in a child process."""

from __future__ import annotations

import pickle
import shutil
import zlib
from collections.abc import Sequence
from lzma import LZMAError
from pathlib import Path
from typing import Any, BinaryIO

from repobuild.artifact import file_digest
from repobuild.errors import Evidence, InputInvalid, RepobuildError, SourceUntrusted, from_oserror
from repobuild.recipe.types import Recipe
from repobuild.sources.containers import (
    StreamEnded,
    StreamUnreadable,
    open_stream,
    read_head,
    refuse_strangers,
)
from repobuild.sources.in_child import ChildSource
from repobuild.sources.interface import Trust
from repobuild.sources.pickle_scan import PickleScan, scan_pickle

SHOWN_NAMES = 24
SHOWN_LENGTH = 200
PROTO = pickle.PROTO[0]


class PickledSource(ChildSource):
    """A scikit-learn model in a joblib or pickle file.

    Args:
        recipe: The recipe that names the file.
        folder: An existing private folder for the copy and for what the child writes.

    Raises:
        InputInvalid: The file is missing, empty, or plainly something else.
        EnvironmentLacking: It cannot be read or copied.
    """

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        given, model = recipe.source.given, folder / "model.joblib"
        head = read_head(recipe.source.path, given)
        refuse_strangers(head, given)
        try:
            shutil.copyfile(recipe.source.path, model)
            digest = file_digest(model)
        except OSError as problem:
            raise from_oserror(problem, "copying the model file") from problem
        super().__init__(given, folder, model, "joblib", digest)
        self._pin = recipe.source.sha256
        self._scan = self._read_opcodes(head)

    def vouch(self, trust: Trust) -> None:
        """Refuse the file unless its pin or ``--trust pickle`` vouches for it. Nothing is loaded.

        Raises:
            InputInvalid: It ends too early.
            SourceUntrusted: Nobody vouches for it, or the pin names another file.
        """
        if self._pin is not None and self._pin != self.digest:
            raise SourceUntrusted(
                "pin-mismatch",
                f"{self._given} is not the file that the recipe pins",
                (
                    Evidence(f"sha256 of the file is {self.digest}", file=self._given),
                    Evidence(f"the recipe pins {self._pin}", key="source.sha256"),
                ),
                "if the model was trained again on purpose, put its new digest into the recipe",
            )
        if self._scan.truncated:
            raise InputInvalid(
                "model-truncated",
                f"{self._given} is truncated: it ends before the model is complete",
                (Evidence(self._scan.trouble, file=self._given),),
                "the file was cut off while it was written or copied; save or fetch it again",
            )
        if self._pin is None and "pickle" not in trust.kinds:
            raise self._untrusted()

    def known_before(self) -> dict[str, Any]:
        """The names that the opcodes import."""
        return {"imports": list(self._scan.imports)}

    def _read_opcodes(self, head: bytes) -> PickleScan:
        with self._model.open("rb") as stream:
            scan = scan_pickle(open_stream(stream))
        with self._model.open("rb") as stream:
            first = _first_byte(stream)
        if (scan.malformed or scan.truncated) and not scan.imports and first != PROTO:
            shown = head[:16].decode("ascii", "backslashreplace")
            raise InputInvalid(
                "model-not-pickle",
                f"{self._given} is not a joblib or pickle file",
                (Evidence(f"it begins with {shown!r}: {scan.trouble}", file=self._given),),
                "name the file that joblib.dump or pickle.dump wrote",
            )
        return scan

    def _untrusted(self) -> RepobuildError:
        scan = self._scan
        lines = [
            *_shown("CALL", [name for name in scan.calls if not _usual(name)]),
            *_shown("import", scan.imports),
        ]
        if not scan.complete:
            lines.append(f"the scan could not follow the file to its end: {scan.trouble}")
        return SourceUntrusted(
            "source-untrusted",
            f"{self._given} is a pickle: loading it runs whatever code it names, and nobody vouched for it",
            tuple(Evidence(line, file=self._given) for line in lines),
            f"if you made the file, pass --trust pickle, or pin it in the recipe: sha256: {self.digest}",
        )


def _shown(what: str, names: Sequence[str]) -> list[str]:
    """Lines on the first few names, each of them cut at a length that fits a screen."""
    lines = [f"loading it would {what} {_cut(name)}" for name in names[:SHOWN_NAMES]]
    if len(names) > SHOWN_NAMES:
        lines.append(f"it would {what} {len(names) - SHOWN_NAMES} more")
    return lines


def _cut(name: str) -> str:
    return name if len(name) <= SHOWN_LENGTH else f"{name[:SHOWN_LENGTH]}... ({len(name)} characters)"


def _usual(name: str) -> bool:
    """Whether a name belongs to a package whose models are made of it; only decides what is shown first."""
    return name.partition(".")[0] in {"sklearn", "numpy", "scipy", "joblib", "copyreg", "collections"}


def _first_byte(stream: BinaryIO) -> int | None:
    try:
        return open_stream(stream).byte()
    except (EOFError, OSError, LZMAError, zlib.error, StreamEnded, StreamUnreadable):
        return None
