"""From a loaded model that takes named tensors to an ONNX file in normal form that answers as it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from repobuild.compare import compare
from repobuild.edge_check import edge_notes, run_edges
from repobuild.errors import ConversionFailed, InputInvalid, RepobuildError, evidence, first_words
from repobuild.export import Graph, refuse_unloadable
from repobuild.graph.external import embed_small, load_graph, store
from repobuild.graph.normal import declare_inputs, finish, normalise, to_opset
from repobuild.graph.operators import without_dropout
from repobuild.graph.outputs import select_outputs
from repobuild.outputs import Wanted
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.releases import Release
from repobuild.runners.onnxruntime import OnnxRuntimeRunner
from repobuild.selection import Selection
from repobuild.sources.interface import TensorExport, TensorSource
from repobuild.tensor_models.answers import ask_reference, graph_outputs, tolerance_of
from repobuild.tensor_models.axes import Ask, Axes
from repobuild.tensor_models.bounds import bound_notes, fixed_batch, narrowed, refuse_fixed
from repobuild.tensor_models.branches import check_branches
from repobuild.tensor_models.feed import TensorFeed
from repobuild.tensor_models.fit import TensorSamples
from repobuild.tensor_models.inputs import name_inputs
from repobuild.tensor_models.load import LoadedTensors, RowByRow
from repobuild.tensor_models.missing import missing_notes
from repobuild.tensor_models.reference import Asked
from repobuild.tensor_models.requests import resized
from repobuild.tensor_models.served import further_requests, largest_batch, warm_request
from repobuild.tensor_models.shapes import Dims, declared_dims, emitted_axes
from repobuild.tensors import Batch, DType, Signature, TensorSpec

if TYPE_CHECKING:
    from onnx import ModelProto

FOLDER = "graph"
FILE = "model.onnx"
EXPORTED = "exported.onnx"


def export_tensors(
    source: TensorSource,
    model: LoadedTensors,
    recipe: Recipe,
    samples: TensorSamples,
    release: Release,
    folder: Path,
) -> Graph:
    """Ask the model for its answers, export it with its free axes, and bring the graph into normal form.

    A file whose batch axis is fixed to 1 is freed if batches are then answered row for row as before. A
    module whose export fixes the batch axis is exported for one row.

    Args:
        source: The loaded model.
        model: Its description.
        recipe: Names, selections and tolerances of the outputs.
        samples: The user's samples.
        release: The Triton release that it must load on.
        folder: Existing folder to work in.

    Raises:
        InputInvalid: The recipe asks for an answer, or a part of one, that the model has not.
        ConversionFailed: The exporter or ONNX Runtime cannot do it.
    """
    maker = _Maker(source, model, recipe, samples, release, folder)
    if model.single is not None:
        freed, why = maker.freed(model.single)
        if freed is not None:
            return freed
        return maker.make(model.axes, source.ask, (why,))
    try:
        return maker.make(model.axes, source.ask)
    except ConversionFailed as problem:
        fixed = fixed_batch(model, recipe, problem)
        if fixed is None:
            raise
        said = first_words(problem)
        why = f"no batch dimension: the exporter fixes the batch axis ({said}); one row a request"
        one = resized(samples.given, model.feed.free(), model.feed.batch or "", 1)
        maker = _Maker(source, model, recipe, replace(samples, given=one, count=1, first={}), release, folder)
        return maker.make(fixed, source.ask, (why,))


class _Maker:
    """Makes and measures the graph for one reading of the axes."""

    def __init__(
        self,
        source: TensorSource,
        model: LoadedTensors,
        recipe: Recipe,
        samples: TensorSamples,
        release: Release,
        folder: Path,
    ) -> None:
        self.source = source
        self.model = model
        self.recipe = recipe
        self.samples = samples
        self.release = release
        self.folder = folder

    def freed(self, axes: Axes) -> tuple[Graph | None, str]:
        """The graph with axis 0 freed if it holds everywhere, or why not."""
        if axes.feed.batch is None:
            return None, "no batch dimension: the file fixes the batch axis to 1; max_batch_size is 0"
        try:
            made = self.make(axes, RowByRow(self.source.ask).ask)
        except RepobuildError as problem:
            return None, f"no batch dimension: the file fixes the batch axis to 1 ({first_words(problem)})"
        wrong = self.differences(made)
        if wrong or not made.signature.batched:
            return None, (
                "no batch dimension: the file fixes the batch axis to 1, and rows of a batch would be"
                f" answered otherwise than alone ({wrong or 'an answer has no row of its own'});"
                " max_batch_size is 0"
            )
        note = (
            "the file fixes the batch axis to 1; it was made free, since rows in batches are answered exactly"
            " as alone"
        )
        return replace(made, notes=(note, *made.notes)), ""

    def differences(self, made: Graph) -> str:
        """Where a graph differs from the model, empty where nowhere."""
        with self._runner(made.path) as runner:
            try:
                answers = runner.run(made.wire)
            except RepobuildError as problem:
                return first_words(problem)
            for name, want in made.reference.batched.items():
                outcome = compare(name, answers[name], want, made.tolerance.of(name))
                if not outcome.holds:
                    return str(outcome.worst or outcome.why)
            edges = run_edges(runner, made.edge_requests, made.edges, made.tolerance)
        return edges.wrong[0][1] if edges.wrong else ""

    def make(self, axes: Axes, ask: Ask, notes: Sequence[str] = ()) -> Graph:
        """Ask, export, normalise, measure."""
        recipe, feed = self.recipe, axes.feed
        wanted, renamed = graph_outputs(recipe, self.model)
        tolerance = tolerance_of(recipe, self.model)
        asked = ask_reference(ask, axes, self.samples, wanted, tolerance, recipe)
        shown = self.source.observed()
        exported = self._export(feed, axes, asked)
        within = narrowed(axes, exported)
        if within.bounds[0] > axes.bounds[0] and asked.batched:
            return self.make(within, ask, notes)
        axes = within
        proto = load_graph(exported.path)
        embed_small(proto, exported.data)
        proto, opset_notes = self._opset(proto)
        runs = self._normal(proto, exported, feed, asked, wanted)
        specs = feed.specs(batched=asked.batched)
        signature = Signature(specs, runs, asked.batched)
        finish(proto, signature)
        refuse_unloadable(proto, self.release)
        home = self.folder / FOLDER
        home.mkdir(exist_ok=True)
        for stale in home.iterdir():
            stale.unlink()
        path = store(proto, exported.data, home / FILE)[0]
        for spent in self.folder.glob(f"{EXPORTED}*"):
            spent.unlink()
        wire = feed.to_wire(asked.base, batched=asked.batched)
        requests = tuple(feed.to_wire(p.request, batched=asked.batched) for p in asked.probes)
        with self._runner(path) as runner:
            outcome = run_edges(runner, requests, asked.edges, tolerance)
            lacking = list(missing_notes(asked.missing, runner, feed, tolerance, batched=asked.batched))
        told = []
        if exported.branches:
            beside = path.with_name("branches.onnx")
            told = check_branches(
                load_graph(path), beside, (wire, *requests), exported.branches, recipe.source.given
            )
        return Graph(
            path=path,
            signature=signature,
            wanted=wanted,
            wire=wire,
            reference=asked.reference,
            edges=asked.edges,
            edge_requests=requests,
            warm=warm_request(feed, asked, wire),
            tolerance=tolerance,
            max_batch_size=largest_batch(recipe, axes) if asked.batched else 0,
            precision=(),
            notes=(
                *notes,
                *asked.notes,
                *shown,
                *renamed,
                *opset_notes,
                *exported.notes,
                *bound_notes(feed, exported),
                *self._library_notes(),
                *told,
                *edge_notes(outcome),
                *lacking,
            ),
            further=further_requests(requests, asked, largest_batch(recipe, axes)),
            libraries=self.source.libraries,
        )

    def _export(self, feed: TensorFeed, axes: Axes, asked: Asked) -> TensorExport:
        """Export on an example in which no free axis has size 1, since exporters take that for fixed."""
        example = dict(asked.base)
        free = feed.free()
        for label, size in feed.sizes().items():
            now = next(
                asked.base[name].shape[axis]
                for name, labels in free.items()
                for axis, have in labels.items()
                if have == label
            )
            larger = max(axes.sizes.get(label, (size,)))
            if now < 2 <= larger:
                example = resized(example, free, label, larger)
        path = self.folder / EXPORTED
        return self.source.export_tensors(self.recipe.opset, path, example, free)

    def _opset(self, proto: ModelProto) -> tuple[ModelProto, list[str]]:
        """The graph at the recipe's opset, or at the highest that the release loads."""
        asked, most = self.recipe.opset, self.release.opset
        if asked is not None and asked > most:
            raise InputInvalid(
                "target-unfit",
                f"Triton {self.release.name} loads opset {most} at most, the recipe asks for {asked}",
                (
                    recipe_evidence(
                        self.recipe, ("export", "opset"), f"its ONNX Runtime is {self.release.onnxruntime}"
                    ),
                ),
                f"write opset: {most}, or name a newer release under target:",
            )
        return to_opset(proto, asked, most)

    def _normal(
        self,
        proto: ModelProto,
        exported: TensorExport,
        feed: TensorFeed,
        asked: Asked,
        wanted: Sequence[Wanted],
    ) -> tuple[TensorSpec, ...]:
        """Bring the graph into normal form in place; the outputs as they come out."""
        import onnx

        try:
            name_inputs(proto, exported, feed, batched=asked.batched)
        except ValueError as problem:
            raise ConversionFailed(
                "export-incomplete",
                "the inputs of the graph cannot bear the names of the model's",
                evidence([str(problem)]),
                "rename the argument",
            ) from problem
        if exported.tool:
            refuse_fixed(proto, feed)
        declared = declared_dims(proto)
        declare_inputs(proto, feed.specs(batched=asked.batched), batched=asked.batched)
        lowest = 2 if asked.batched else 1
        probe = exported.data / "probe.onnx"
        _refuse_lacking(exported, wanted)
        base = feed.to_wire(asked.base, batched=asked.batched)
        ranks = self._ranks(proto, declared, exported, probe, base)
        chains = {w.name: (Selection(exported.answers[w.selection.answer]), w.selection) for w in wanted}
        passes = [select_outputs(chains, ranks, lowest=lowest), without_dropout]
        normalise(proto, self.recipe.name, passes)
        onnx.save(proto, str(probe))
        self.source.try_graph(probe)
        with self._runner(probe) as runner:
            seen = [runner.run(base)]
            for probe_, want in zip(asked.probes, asked.edges.answers, strict=True):
                if probe_.about[0] == "size" and not isinstance(want, str):
                    try:
                        seen.append(runner.run(feed.to_wire(probe_.request, batched=asked.batched)))
                    except RepobuildError:
                        continue  # the edge check compares the same request, and tells
        probe.unlink()
        return tuple(
            TensorSpec(
                w.name,
                DType.of(seen[0][w.name].dtype),
                emitted_axes(
                    declared.get(exported.answers[w.selection.answer]),
                    w.selection,
                    [s[w.name].shape for s in seen],
                    batched=asked.batched,
                    derived=runner.shapes.get(w.name),
                ),
            )
            for w in wanted
        )

    def _ranks(
        self,
        proto: ModelProto,
        declared: Mapping[str, Dims | None],
        exported: TensorExport,
        probe: Path,
        wire: Batch,
    ) -> dict[str, int]:
        """Rank of each output of the graph: as declared, or else as a run shows."""
        import onnx

        found = {name: len(dims) for name, dims in declared.items() if dims is not None}
        if all(name in found for name in exported.answers.values()):
            return found
        onnx.save(proto, str(probe))
        with self._runner(probe) as runner:
            return {name: array.ndim for name, array in runner.run(wire).items()}

    def _library_notes(self) -> list[str]:
        """Libraries ask ONNX Runtime for the version of its interface that they were compiled for."""
        import onnxruntime

        here, there = onnxruntime.__version__, self.release.onnxruntime
        if not self.source.libraries or here.split(".")[:2] == there.split(".")[:2]:
            return []
        names = ", ".join(one.name for one in self.source.libraries)
        return [f"{names} was loaded by ONNX Runtime {here}; Triton {self.release.name} has {there}"]

    def _runner(self, path: Path) -> OnnxRuntimeRunner:
        return OnnxRuntimeRunner(path, self.source.libraries)


def _refuse_lacking(exported: TensorExport, wanted: Sequence[Wanted]) -> None:
    absent = [w.selection.answer for w in wanted if w.selection.answer not in exported.answers]
    if absent:
        raise ConversionFailed(
            "export-incomplete",
            f"the ONNX graph does not answer with '{absent[0]}'",
            evidence([f"it answers with {', '.join(exported.answers)}"]),
            "name the outputs to serve under outputs: in the recipe",
        )
