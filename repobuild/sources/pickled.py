"""joblib, pickle and cloudpickle files: scanned before anything runs, loaded only in a child process."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from lzma import LZMAError
from pathlib import Path
from typing import Any, BinaryIO

from repobuild.errors import Evidence, InputInvalid, RepobuildError
from repobuild.recipe.types import Recipe
from repobuild.sources.containers import HEAD_BYTES, compression_of, open_stream
from repobuild.sources.content import is_pickle_head, kind_of_head
from repobuild.sources.interface import Trust
from repobuild.sources.made_with import blame_versions, mismatches
from repobuild.sources.model_file import ModelFile, copy_model, kind_mismatch
from repobuild.sources.pickle_scan import PickleScan, scan_pickle
from repobuild.sources.rows_in_child import RowsInChild
from repobuild.sources.streams import CountingStream, StreamEnded, StreamUnreadable
from repobuild.sources.untrusted import untrusted, what_it_would_do

KINDS = ("joblib", "pickle", "cloudpickle")


class PickledSource(RowsInChild):
    """A scikit-learn model in a joblib, pickle or cloudpickle file; which of them it is, its content tells.

    Args:
        recipe: The recipe that names the file.
        folder: An existing private folder for the copy and for what the child writes.

    Raises:
        InputInvalid: The file is missing, empty, or plainly something else.
        EnvironmentLacking: It cannot be read or copied.
    """

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        file = copy_model(recipe, folder / "model.pickled")
        if file.content.kind not in ("pickle", "unknown"):
            raise kind_mismatch(file.given, file.content, recipe.source.kind or KINDS[0])
        self._file = file
        self._scan = _read_opcodes(file)
        super().__init__(file.given, folder, file.path, _flavour(file, self._scan), file.digest)
        self._asked_kind = recipe.source.kind
        self._mismatches = mismatches(self._scan.versions)

    @property
    def kind(self) -> str:
        """``joblib``, ``pickle`` or ``cloudpickle``."""
        return self._kind

    def vouch(self, trust: Trust) -> None:
        """Refuse the file unless its pin or ``--trust pickle`` vouches for it. Nothing is loaded.

        Raises:
            InputInvalid: It ends too early.
            SourceUntrusted: Nobody vouches for it, or the pin names another file.
        """
        self._file.check_pin()
        if self._scan.truncated:
            raise InputInvalid(
                "model-truncated",
                f"{self._given} is truncated: it ends before the model is complete",
                (Evidence(self._scan.trouble, file=self._given),),
                "the file was cut off while it was written or copied; save or fetch it again",
            )
        if self._file.pin is None and "pickle" not in trust.kinds:
            scan = self._scan
            lines = what_it_would_do(scan.calls, scan.imports, scan.code)
            if not scan.complete:
                lines.append(f"the scan could not follow the file to its end: {scan.trouble}")
            raise untrusted(self._file, "is a pickle: loading it runs whatever code it names", lines)

    def known_before(self) -> dict[str, Any]:
        """What the opcodes import, the code that they carry, and the versions that they were made with."""
        return {
            "imports": list(self._scan.imports),
            "carries": list(self._scan.code),
            "trained_with": {package: list(found) for package, found in self._scan.versions.items()},
        }

    def notes_before(self) -> Sequence[str]:
        """Versions that differ from the installed ones, and a kind that differs from the recipe's.

        joblib writes a plain pickle where a model holds no arrays, so ``kind: joblib`` is right for one.
        """
        notes = [f"{self._given}: {item}" for item in self._mismatches]
        if self._asked_kind in KINDS and self._asked_kind not in ("joblib", self._kind):
            notes.append(f"the recipe says that {self._given} is {self._asked_kind}; it is {self._kind}")
        return notes

    def explain(self, problem: RepobuildError) -> RepobuildError:
        """An error of the child, with the versions that may be behind it."""
        return blame_versions(problem, self._mismatches)


def _flavour(file: ModelFile, scan: PickleScan) -> str:
    """Joblib reads all of them, and alone reads what is compressed or what the scan was lost in."""
    return scan.flavour if scan.complete and compression_of(file.head) is None else "joblib"


def _read_opcodes(file: ModelFile) -> PickleScan:
    with file.path.open("rb") as stream:
        counting = open_stream(stream)
        scan = scan_pickle(counting)
        if scan.complete and not _ended(counting):
            trouble = "more bytes follow after the end of the pickle, which loading should not read"
            scan = replace(scan, complete=False, trouble=trouble)
    with file.path.open("rb") as stream:
        first = _first_bytes(stream)
    if (scan.malformed or scan.truncated) and not scan.imports and not is_pickle_head(first):
        inner = kind_of_head(first.ljust(HEAD_BYTES, b"\0")) if compression_of(file.head) else "unknown"
        shown = file.head[:16].decode("ascii", "backslashreplace")
        raise InputInvalid(
            "model-not-pickle",
            f"{file.given} is not a joblib or pickle file",
            (
                Evidence(
                    f"it begins with {shown!r}: {file.content.trouble or scan.trouble}", file=file.given
                ),
                *([Evidence(f"decompressed, it is {inner}", file=file.given)] if inner != "unknown" else []),
            ),
            "name the file that joblib.dump or pickle.dump wrote",
        )
    return scan


def _ended(stream: CountingStream) -> bool:
    """Whether the stream holds nothing more."""
    try:
        stream.byte()
    except (EOFError, OSError, LZMAError, zlib.error, StreamEnded, StreamUnreadable):
        return True
    return False


def _first_bytes(stream: BinaryIO) -> bytes:
    """The first two decompressed bytes, or fewer where there are none."""
    found = b""
    try:
        counting = open_stream(stream)
        for _ in range(2):
            found += bytes([counting.byte()])
    except (EOFError, OSError, LZMAError, zlib.error, StreamEnded, StreamUnreadable):
        return found
    return found
