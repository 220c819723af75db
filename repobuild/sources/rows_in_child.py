"""Models that take rows of a table, in their child process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from repobuild.artifact import Tool
from repobuild.feeds import Feed
from repobuild.recipe.types import Recipe
from repobuild.sources.in_child import EXPORTED, ChildSource
from repobuild.sources.interface import Description, Exported
from repobuild.tensors import Batch, DType
from repobuild.worker.arrays import load_batch, save_batch, writing
from repobuild.worker.asking import ANSWER, MALFORMED, QUESTION


class RowsInChild(ChildSource):
    """A :class:`repobuild.sources.interface.RowsSource` whose model lives in a child process."""

    takes: Literal["rows"] = "rows"
    takes_custom_ops: Literal["modules"] | None = "modules"

    def describe(self, recipe: Recipe, layout: dict[str, Any] | None = None) -> Description:
        """See :meth:`repobuild.sources.interface.RowsSource.describe`."""
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
            facts=self.facts(reply["model"], reply["facts"]),
            feed=Feed.from_dict(reply["feed"]),
            tools=tuple(Tool(name, version) for name, version in reply["tools"].items()),
        )

    def export(self, opset: int, to: Path, floats: DType) -> Exported:
        """See :meth:`repobuild.sources.interface.RowsSource.export`."""
        child = self._child()
        made = child.place / EXPORTED
        reply = child.call("export", opset=opset, to=str(made), floats=floats.value)
        return Exported(child.take(EXPORTED, to), dict(reply["answers"]))

    def predict(
        self, batch: Batch, *, one_by_one: bool = False, answers: Sequence[str] | None = None
    ) -> Batch:
        """See :meth:`repobuild.sources.interface.RowsSource.predict`."""
        self._ask("predict", batch, one_by_one=one_by_one, answers=answers)
        return self._answer()

    def predict_each(
        self, batch: Batch, answers: Sequence[str] | None = None
    ) -> tuple[Batch, tuple[str | None, ...]]:
        """See :meth:`repobuild.sources.interface.RowsSource.predict_each`."""
        reply = self._ask("predict_each", batch, answers=answers)
        return self._answer(), tuple(reply["errors"])

    def jumps(self, batch: Batch, single: Sequence[str]) -> Batch:
        """See :meth:`repobuild.sources.interface.RowsSource.jumps`."""
        self._ask("jumps", batch, single=list(single))
        return self._answer()

    def made_up(self, count: int) -> Batch:
        """See :meth:`repobuild.sources.interface.RowsSource.made_up`."""
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
