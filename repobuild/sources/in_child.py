"""The part that sources share whose models load, export and answer in a child process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from repobuild.errors import RepobuildError
from repobuild.interrupts import deferred_interrupts
from repobuild.worker.host import Worker

EXPORTED = "exported.onnx"


class ChildSource:
    """Asks a child process for everything that runs code of a model or of its framework.

    Args:
        given: The path as the recipe has it.
        folder: An existing private folder for what goes to and comes from the child, whose own folder lies in
            it; the child writes nowhere else.
        model: The private copy of the model file.
        kind: Its kind, for the report and for the child, which picks the loader by it.
        digest: Its sha256, hexadecimal.
    """

    def __init__(self, given: str, folder: Path, model: Path, kind: str, digest: str) -> None:
        self._given = given
        self._folder = folder
        self._model = model
        self._kind = kind
        self.digest = digest
        self._worker: Worker | None = None

    def known_before(self) -> dict[str, Any]:
        """JSON-ready facts for the report that were read from the file before anything was loaded."""
        return {}

    def explain(self, problem: RepobuildError) -> RepobuildError:
        """An error of the child, with what is known of the file."""
        return problem

    def notes_before(self) -> Sequence[str]:
        """What a reader of the report should know, read from the file before anything was loaded."""
        return ()

    def facts(self, model: str, told: Mapping[str, Any]) -> dict[str, Any]:
        """What the report says of the model, with what the child told."""
        return {
            "path": self._given if not Path(self._given).is_absolute() else Path(self._given).name,
            "kind": self._kind,
            "sha256": self.digest,
            "model": model,
            **self.known_before(),
            **told,
            "sandbox": self._child().sandbox,
            "notes": [
                *self.notes_before(),
                *_open_doors(self._child().sandbox),
                *told.get("notes", ()),
            ],
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()

    def _end(self) -> None:
        """End the child process; the next question starts another."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _child(self) -> Worker:
        if self._worker is None:
            with deferred_interrupts():
                self._worker = Worker(self._folder, f"loading {self._given}", explain=self.explain)
        return self._worker


def _open_doors(sandbox: Mapping[str, str]) -> list[str]:
    """Notes on what code of the model could have done, where the system allows no sandbox."""
    return [
        f"{what} of the model's child process: {state}"
        for what, state in sandbox.items()
        if state.startswith("not ")  # Landlock is young, and its lack is only a fact of the report
    ]
