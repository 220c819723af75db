"""The part that sources share whose models load, export and answer in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from repobuild.artifact import Tool
from repobuild.recipe.types import Recipe
from repobuild.sources.interface import Description, Exported
from repobuild.tensors import Batch, DType, TensorSpec
from repobuild.worker.arrays import load_batch, save_batch, writing
from repobuild.worker.host import Worker


class ChildSource:
    """Asks a child process for everything that runs code of a model or of its framework.

    Args:
        given: The path as the recipe has it.
        folder: An existing private folder for what goes to and comes from the child.
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
                "notes": [*self.notes_before(), *reply["facts"].get("notes", ())],
            },
            inputs=tuple(
                TensorSpec(i["name"], DType(i["dtype"]), (None, *i["dims"])) for i in reply["inputs"]
            ),
            tools=tuple(Tool(name, version) for name, version in reply["tools"].items()),
        )

    def known_before(self) -> dict[str, Any]:
        """JSON-ready facts for the report that were read from the file before anything was loaded."""
        return {}

    def notes_before(self) -> Sequence[str]:
        """What a reader of the report should know, read from the file before anything was loaded."""
        return ()

    def export(self, opset: int, to: Path) -> Exported:
        """See :meth:`repobuild.sources.interface.Source.export`."""
        reply = self._child().call("export", opset=opset, to=str(to))
        return Exported(to, dict(reply["answers"]))

    def predict(
        self, batch: Batch, *, one_by_one: bool = False, answers: Sequence[str] | None = None
    ) -> Batch:
        """See :meth:`repobuild.sources.interface.Source.predict`."""
        question, answer = self._folder / "question.npz", self._folder / "answer.npz"
        with writing("the rows for the model"):
            save_batch(question, batch)
        self._child().call(
            "predict", batch=str(question), to=str(answer), one_by_one=one_by_one, answers=answers
        )
        return load_batch(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._worker is not None:
            self._worker.close()

    def _child(self) -> Worker:
        if self._worker is None:
            self._worker = Worker(self._folder, f"loading {self._given}")
        return self._worker
