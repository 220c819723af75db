"""The part that sources share whose models load, export and answer in a child process."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

from repobuild.artifact import Tool
from repobuild.errors import RepobuildError
from repobuild.feeds import Feed
from repobuild.interrupts import deferred_interrupts
from repobuild.recipe.types import Recipe
from repobuild.sources.interface import Description, Exported
from repobuild.tensors import Batch, DType
from repobuild.worker.arrays import load_batch, save_batch, writing
from repobuild.worker.host import Worker

QUESTION = "question.npz"
ANSWER = "answer.npz"
EXPORTED = "exported.onnx"
MALFORMED = (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, BadZipFile, zlib.error)
"""What reading an npz file raises that is none, or not one of ours."""


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

    def describe(self, recipe: Recipe, layout: dict[str, Any] | None = None) -> Description:
        """See :meth:`repobuild.sources.interface.Source.describe`."""
        reply = self._child().call(
            "load",
            path=str(self._model),
            given=self._given,
            kind=self._kind,
            method=recipe.source.method,
            layout=layout,
            custom_ops=list(recipe.source.custom_ops),
            inputs=[
                {"name": i.name, "dtype": i.dtype.value if i.dtype else None, "dims": i.dims}
                for i in recipe.inputs
            ],
        )
        return Description(
            model=reply["model"],
            facts={
                "path": self._given if not Path(self._given).is_absolute() else Path(self._given).name,
                "kind": self._kind,
                "sha256": self.digest,
                "model": reply["model"],
                **self.known_before(),
                **reply["facts"],
                "sandbox": self._child().sandbox,
                "notes": [
                    *self.notes_before(),
                    *_open_doors(self._child().sandbox),
                    *reply["facts"].get("notes", ()),
                ],
            },
            feed=Feed.from_dict(reply["feed"]),
            tools=tuple(Tool(name, version) for name, version in reply["tools"].items()),
        )

    def known_before(self) -> dict[str, Any]:
        """JSON-ready facts for the report that were read from the file before anything was loaded."""
        return {}

    def explain(self, problem: RepobuildError) -> RepobuildError:
        """An error of the child, with what is known of the file."""
        return problem

    def notes_before(self) -> Sequence[str]:
        """What a reader of the report should know, read from the file before anything was loaded."""
        return ()

    def export(self, opset: int, to: Path, floats: DType) -> Exported:
        """See :meth:`repobuild.sources.interface.Source.export`."""
        child = self._child()
        made = child.place / EXPORTED
        reply = child.call("export", opset=opset, to=str(made), floats=floats.value)
        return Exported(child.take(EXPORTED, to), dict(reply["answers"]))

    def predict(
        self, batch: Batch, *, one_by_one: bool = False, answers: Sequence[str] | None = None
    ) -> Batch:
        """See :meth:`repobuild.sources.interface.Source.predict`."""
        self._ask("predict", batch, one_by_one=one_by_one, answers=answers)
        return self._answer()

    def predict_each(
        self, batch: Batch, answers: Sequence[str] | None = None
    ) -> tuple[Batch, tuple[str | None, ...]]:
        """See :meth:`repobuild.sources.interface.Source.predict_each`."""
        reply = self._ask("predict_each", batch, answers=answers)
        return self._answer(), tuple(reply["errors"])

    def jumps(self, batch: Batch, single: Sequence[str]) -> Batch:
        """See :meth:`repobuild.sources.interface.Source.jumps`."""
        self._ask("jumps", batch, single=list(single))
        return self._answer()

    def made_up(self, count: int) -> Batch:
        """See :meth:`repobuild.sources.interface.Source.made_up`."""
        child = self._child()
        child.call("made_up", count=count, to=str(child.place / ANSWER))
        return self._answer()

    def _ask(self, operation: str, batch: Batch, **parameters: Any) -> dict[str, Any]:
        question = self._folder / QUESTION
        with writing("the rows for the model"):
            save_batch(question, batch)
        child = self._child()
        return child.call(operation, batch=str(question), to=str(child.place / ANSWER), **parameters)

    def _answer(self) -> Batch:
        child = self._child()
        file = child.take(ANSWER, self._folder / ANSWER)
        try:
            return load_batch(file)
        except MALFORMED as problem:
            raise child.unusable(ANSWER, f"{type(problem).__name__}: {problem}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._worker is not None:
            self._worker.close()

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
