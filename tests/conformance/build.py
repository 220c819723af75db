"""Brings one case into a model repository by the builder's own steps, all in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repobuild.artifact import Tool
from repobuild.checks import check_artifact
from repobuild.compilers.onnxruntime import OnnxRuntimeCompiler
from repobuild.edge_check import edge_check, run_edges
from repobuild.emit.model import Emission, emit
from repobuild.emit.workshop import Workshop
from repobuild.prepare import target_release
from repobuild.recipe.types import Recipe, SourceRecipe
from repobuild.report import Fail
from repobuild.runners.onnxruntime import OnnxRuntimeRunner
from repobuild.sources.interface import TensorArgument, TensorDescription, TensorExport, Trust
from repobuild.tensor_models.feed import TensorFeed
from repobuild.tensor_models.graph import export_tensors
from repobuild.tensor_models.load import load_tensors
from repobuild.tensors import Batch, DType
from repobuild.worker.onnx_model import OnnxModel, open_onnx
from repobuild.worker.onnx_session import open_session
from repobuild.worker.tensor_model import Declined
from tests.conformance.cases import Case, as_text


@dataclass(frozen=True)
class Built:
    """A case in the repository.

    Attributes:
        case: The case.
        emission: What was written.
        feed: How its inputs go on the wire.
        notes: What was decided.
        renamed: ``{output of the case: output that is served}``; outputs that are no tensors are not in it.
    """

    case: Case
    emission: Emission
    feed: TensorFeed
    renamed: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @property
    def batched(self) -> bool:
        """Whether it has a batch dimension."""
        return self.emission.signature.batched


class CheckFailed(Exception):
    """Raised when the builder's own comparison of model and artifact fails."""


def build(case: Case, shop: Workshop, folder: Path, **further: Any) -> Built:
    """Convert a case as ``repobuild convert`` would, up to the staged model.

    Args:
        case: The case.
        shop: Holds the repository of all cases.
        folder: New folder to work in.
        further: Fields of the recipe.

    Raises:
        RepobuildError: The builder refuses it.
        CheckFailed: The artifact does not answer as the model does.
    """
    import numpy as np
    import onnx

    folder.mkdir()
    file, samples = folder / "case.onnx", folder / "samples.npz"
    onnx.save(case.model, str(file))
    sent = case.sent()
    np.savez(samples, **sent)
    recipe = Recipe(
        case.name,
        SourceRecipe(file, "case.onnx", "onnx"),
        samples if sent else None,
        "samples.npz",
        folder=folder,
        **further,
    )
    source = InThisProcess(file)
    release = target_release(recipe)
    model, fitted = load_tensors(recipe, source)
    graph = export_tensors(source, model, recipe, fitted, release, folder)
    artifact = OnnxRuntimeCompiler().compile(graph.path, graph.signature, shop.work / "model.onnx")
    runner = OnnxRuntimeRunner(artifact.path)
    checks = [
        *check_artifact(runner, graph.wire, graph.reference, artifact.signature, graph.tolerance, {}),
        edge_check(run_edges(runner, graph.edge_requests, graph.edges, graph.tolerance)),
    ]
    failed = [f"{c.name}: {c.verdict.detail}" for c in checks if isinstance(c.verdict, Fail)]
    if failed:
        raise CheckFailed("; ".join(failed))
    emission = emit(shop, recipe, artifact, OnnxRuntimeCompiler(), graph.max_batch_size, graph.warm)
    renamed = {w.selection.answer: w.name for w in graph.wanted}
    notes = (*model.facts["notes"], *fitted.notes, *graph.notes)
    return Built(case, emission, model.feed, renamed, notes)


class InThisProcess:
    """A source whose model is asked here, without the child process that a real build has.

    Args:
        path: The ONNX file.
    """

    kind = "onnx"
    takes = "tensors"
    takes_custom_ops = "libraries"
    libraries = ()

    def __init__(self, path: Path) -> None:
        self._path = path
        self._model: OnnxModel | None = None

    def vouch(self, trust: Trust) -> None:
        """An ONNX file needs nobody to vouch for it."""

    def known_before(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def describe_tensors(self, recipe: Recipe, layout: dict[str, Any] | None) -> TensorDescription:
        """See :meth:`repobuild.sources.interface.TensorSource.describe_tensors`."""
        self._model = open_onnx(str(self._path), "case.onnx", dict(recipe.export), layout)
        told = self._model.description()
        return TensorDescription(
            told["model"],
            dict(told["facts"]),
            tuple(
                TensorArgument(i["name"], i["sample"], DType(i["dtype"]), tuple(i["shape"]), {})
                for i in told["inputs"]
            ),
            tuple(Tool(name, version) for name, version in told["tools"].items()),
        )

    def ask(self, requests: Sequence[Batch]) -> list[Batch | str]:
        """See :meth:`repobuild.sources.interface.TensorSource.ask`."""
        assert self._model is not None
        found: list[Batch | str] = []
        for request in requests:
            try:
                answer = self._model.ask(request)
            except Declined as problem:
                found.append(str(problem))
            else:
                found.append({name: _plain(array) for name, array in answer.items()})
        return found

    def observed(self) -> tuple[str, ...]:
        """See :meth:`repobuild.sources.interface.TensorSource.observed`."""
        assert self._model is not None
        return tuple(self._model.observed())

    def export_tensors(
        self, opset: int | None, to: Path, example: Batch, free: Mapping[str, Mapping[int, str]]
    ) -> TensorExport:
        """See :meth:`repobuild.sources.interface.TensorSource.export_tensors`."""
        assert self._model is not None
        made = self._model.export(opset, to, example, free)
        return TensorExport(
            to, self._path.parent, made["answers"], made["inputs"], tuple(made["notes"]), made["exporter"]
        )

    def try_graph(self, graph: Path) -> None:
        """See :meth:`repobuild.sources.interface.TensorSource.try_graph`."""
        open_session(graph)

    @contextlib.contextmanager
    def opened(self) -> Iterator[InThisProcess]:
        """Itself."""
        yield self


def _plain(array: Any) -> Any:
    """Text as NumPy's unicode, in which it comes out of the child process of a real build."""
    import numpy as np

    array = np.asarray(array)
    if array.dtype.kind != "O":
        return array
    return as_text(array)
