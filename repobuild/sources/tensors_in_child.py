"""Models that take named tensors, in their child process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from repobuild.artifact import Library, Tool
from repobuild.recipe.types import Recipe
from repobuild.sources.in_child import EXPORTED, ChildSource
from repobuild.sources.interface import ScriptExport, TensorArgument, TensorDescription, TensorExport
from repobuild.tensors import Batch, DType
from repobuild.worker.arrays import save_batch, writing
from repobuild.worker.asking import QUESTION, exchange
from repobuild.worker.host import Worker
from repobuild.worker.script_host import ask_script
from repobuild.worker.trial import try_graph

DATA = f"{EXPORTED}.data"


class TensorsInChild(ChildSource):
    """A :class:`repobuild.sources.interface.TensorSource` whose model lives in a child process."""

    takes: Literal["tensors"] = "tensors"
    takes_custom_ops: Literal["libraries"] | None = None
    libraries: tuple[Library, ...] = ()

    def opening(self, recipe: Recipe) -> dict[str, Any]:
        """What the child's opener of this kind takes beside ``given``, ``options`` and ``layout``."""
        del recipe
        return {"path": str(self._model)}

    def describe_tensors(self, recipe: Recipe, layout: dict[str, Any] | None) -> TensorDescription:
        """See :meth:`repobuild.sources.interface.TensorSource.describe_tensors`."""
        self._opening = {
            "kind": self._kind,
            "given": self._given,
            "options": dict(recipe.export),
            "layout": layout,
            **self.opening(recipe),
        }
        reply = self._child().call("open_tensors", **self._opening)
        return TensorDescription(
            model=reply["model"],
            facts=self.facts(reply["model"], reply["facts"]),
            arguments=tuple(_argument(item) for item in reply["inputs"]),
            tools=tuple(Tool(name, version) for name, version in reply["tools"].items()),
        )

    def ask(self, requests: Sequence[Batch]) -> list[Batch | str]:
        """See :meth:`repobuild.sources.interface.TensorSource.ask`."""
        return exchange(self._holding(), "ask", self._folder, requests, str)

    def observed(self) -> tuple[str, ...]:
        """See :meth:`repobuild.sources.interface.TensorSource.observed`."""
        return tuple(map(str, self._holding().call("observed")["notes"]))

    def export_tensors(
        self, opset: int | None, to: Path, example: Batch, free: Mapping[str, Mapping[int, str]]
    ) -> TensorExport:
        """See :meth:`repobuild.sources.interface.TensorSource.export_tensors`."""
        question = self._folder / QUESTION
        with writing("the example for the exporter"):
            save_batch(question, example)
        child = self._holding()
        made = child.place / EXPORTED
        for stale in (made, child.place / DATA):
            stale.unlink(missing_ok=True)
        reply = child.call(
            "export_tensors",
            opset=opset,
            to=str(made),
            example=str(question),
            free={name: {str(a): label for a, label in axes.items()} for name, axes in free.items()},
        )
        path = child.take(EXPORTED, to)
        data = self.data_folder(to.parent)
        if (child.place / DATA).exists():
            child.take(DATA, to.parent / DATA)
        return TensorExport(
            path=path,
            data=data,
            answers=dict(reply["answers"]),
            inputs=dict(reply["inputs"]),
            notes=tuple(reply["notes"]),
            tool=str(reply["exporter"]),
            branches=tuple(reply.get("branches", ())),
            bounds={
                name: {int(axis): (low, high) for axis, (low, high) in axes.items()}
                for name, axes in reply.get("bounds", {}).items()
            },
        )

    def script_ways(self) -> tuple[str, ...]:
        """See :meth:`repobuild.sources.interface.TensorSource.script_ways`."""
        return tuple(self._holding().call("script_ways")["ways"])

    def make_script(
        self, way: str, to: Path, example: Batch, wiring: Mapping[str, Any], *, freeze: bool
    ) -> ScriptExport:
        """See :meth:`repobuild.sources.interface.TensorSource.make_script`."""
        question = self._folder / QUESTION
        with writing("the example for TorchScript"):
            save_batch(question, example)
        child = self._holding()
        child.call("close_script")
        made = child.place / to.name
        made.unlink(missing_ok=True)
        reply = child.call(
            "make_script", way=way, to=str(made), example=str(question), plan=dict(wiring), freeze=freeze
        )
        shapes = reply["shapes"]
        found = ScriptExport(
            child.take(to.name, to),
            tuple(reply["arguments"]),
            None if shapes is None else tuple(tuple(shape) for shape in shapes),
            tuple(reply["devices"]),
        )
        child.call(
            "open_script_file", path=str(to), inputs=list(wiring["ranks"]), outputs=list(wiring["names"])
        )
        return found

    def ask_script(self, script: ScriptExport, names: Sequence[str], request: Batch) -> Batch | str:
        """See :meth:`repobuild.sources.interface.TensorSource.ask_script`."""
        return ask_script(self._child(), self._folder, names, request)

    def try_graph(self, graph: Path) -> None:
        """See :meth:`repobuild.sources.interface.TensorSource.try_graph`."""
        self._end()
        try_graph(graph, self._given, self._folder, self.libraries)

    def _holding(self) -> Worker:
        """The child process with the model in it; one that was ended is started and loaded again."""
        ended = self._worker is None
        child = self._child()
        if ended:
            child.call("open_tensors", **self._opening)
        return child

    def data_folder(self, exported: Path) -> Path:
        """Where the exported graph's external data lies.

        Args:
            exported: Folder of the exported graph.
        """
        return exported


def _argument(item: Mapping[str, Any]) -> TensorArgument:
    return TensorArgument(
        name=item["name"],
        sample=item["sample"],
        dtype=DType(item["dtype"]) if item["dtype"] else None,
        shape=tuple(item["shape"]),
        bounds={label: (low, high) for label, (low, high) in item.get("bounds", {}).items()},
    )
