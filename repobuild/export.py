"""From a loaded model to an ONNX file in normal form that answers with what the recipe asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repobuild.artifact import Library
from repobuild.checks import Reference, ask_model
from repobuild.compare import compare
from repobuild.edge_check import EdgeReference, ask_edges, edge_notes, run_edges
from repobuild.errors import ConversionFailed, InputInvalid, evidence
from repobuild.graph.labels import index_labels
from repobuild.graph.normal import finish, normalise, tensors_only
from repobuild.graph.outputs import select_outputs
from repobuild.outputs import Wanted, wanted_outputs
from repobuild.precision import Attempt, Candidate, choose_precision
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import DEFAULT_MAX_BATCH_SIZE, Recipe, Tolerance
from repobuild.releases import Release
from repobuild.report import Deviation
from repobuild.runners.onnxruntime import OnnxRuntimeRunner
from repobuild.samples.edges import edge_rows
from repobuild.samples.fit import Samples, single_precision, to_wire
from repobuild.selection import Selection
from repobuild.sources.interface import Description, RowsSource
from repobuild.tensors import Array, Batch, DType, Signature, TensorSpec, rows, take

DEFAULT_OPSET = 17
"""Opset of the default domain when the recipe names none; ONNX Runtime 1.12 and Triton 22.07 know it."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A model in the form that a compiler takes: ONNX in normal form, or TorchScript.

    Attributes:
        path: The file.
        signature: Its tensors.
        wanted: What its outputs are.
        wire: The samples in the types of its inputs.
        reference: The model's own answers under the names of the outputs.
        edges: The model's own words on the edge rows.
        edge_requests: The edge rows in the types of its inputs, each a request of its own.
        warm: A request for warm-up, of one row with a batch axis.
        tolerance: The recipe's, with equality for class labels.
        max_batch_size: What config.pbtxt may say; 0 without a batch dimension.
        precision: What was tried for the precision of the inputs.
        notes: What was decided for the user.
        further: Requests of other sizes with the model's answers, to be replayed through the server.
        libraries: What it takes its custom operators from.
    """

    path: Path
    signature: Signature
    wanted: tuple[Wanted, ...]
    wire: Batch
    reference: Reference
    edges: EdgeReference
    edge_requests: tuple[Batch, ...]
    warm: Batch
    tolerance: Tolerance
    max_batch_size: int
    precision: tuple[Attempt, ...]
    notes: tuple[str, ...]
    further: tuple[tuple[Batch, Batch], ...] = ()
    libraries: tuple[Library, ...] = ()

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """Text of each element by output, for the label files."""
        return {w.name: w.labels for w in self.wanted if w.labels}

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """The classes behind the index by output, for those that serve an index."""
        return {w.name: tuple(map(str, w.index_of)) for w in self.wanted if w.index_of is not None}


def export_graph(
    source: RowsSource,
    model: Description,
    recipe: Recipe,
    samples: Samples,
    release: Release,
    folder: Path,
) -> Graph:
    """Export a model in the precision that its answers need, and bring it into normal form.

    Args:
        source: The loaded model.
        model: Its description.
        recipe: Names, selections and tolerances of the outputs.
        samples: The user's rows.
        release: The Triton release that it must load on.
        folder: Existing folder to work in.

    Raises:
        InputInvalid: The recipe asks for an answer, or a part of one, that the model has not.
        ConversionFailed: The exporter or ONNX Runtime cannot do it.
    """
    opset = _opset(recipe, release)
    wanted = wanted_outputs(recipe, model)
    reference = _ask(source, samples, wanted, recipe)
    jumps = source.jumps(samples.given, single_precision(samples.given, recipe))
    rows_at_edges = edge_rows(samples.given, model.feed, jumps)
    edges = ask_edges(source, rows_at_edges, wanted)
    tolerance = recipe.tolerance.with_exact(w.name for w in wanted if w.is_label)
    maker = _Maker(
        source,
        model,
        recipe,
        samples,
        wanted,
        reference,
        edges,
        rows_at_edges.given,
        tolerance,
        opset,
        release,
        folder,
    )
    choice = choose_precision(model.feed, maker.make)
    taken = choice.candidate
    path = folder / "graph.onnx"
    path.write_bytes(taken.proto.SerializeToString(deterministic=True))
    size = recipe.serving.get("max_batch_size", DEFAULT_MAX_BATCH_SIZE)
    return Graph(
        path=path,
        signature=taken.signature,
        wanted=wanted,
        wire=maker.wire(taken.floats),
        reference=reference,
        edges=edges,
        edge_requests=maker.edge_requests(taken.floats),
        warm=take(maker.wire(taken.floats), 0, 1),
        tolerance=tolerance,
        max_batch_size=size if taken.signature.batched else 0,
        precision=choice.attempts,
        notes=(*choice.notes, *taken.notes, *edge_notes(taken.edges)),
    )


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes and measures the graph in one precision."""

    source: RowsSource
    model: Description
    recipe: Recipe
    samples: Samples
    wanted: tuple[Wanted, ...]
    reference: Reference
    edges: EdgeReference
    edge_given: Batch
    tolerance: Tolerance
    opset: int
    release: Release
    folder: Path

    def wire(self, floats: DType) -> Batch:
        return to_wire(self.recipe, self.samples.given, self.model.feed, floats)

    def edge_requests(self, floats: DType) -> tuple[Batch, ...]:
        if not self.edges.answers:
            return ()
        wire = to_wire(self.recipe, self.edge_given, self.model.feed, floats)
        return tuple(take(wire, i, i + 1) for i in range(len(self.edges.answers)))

    def make(self, floats: DType) -> Candidate:
        import onnx
        from google.protobuf.message import DecodeError

        wire = self.wire(floats)
        exported = self.source.export(self.opset, self.folder / "exported.onnx", floats)
        absent = [w for w in self.wanted if w.selection.answer not in exported.answers]
        if absent:
            raise ConversionFailed(
                "export-incomplete",
                f"the ONNX graph does not answer with '{absent[0].selection.answer}'",
                evidence([f"it answers with {', '.join(exported.answers)}"]),
                "name the outputs to serve under outputs: in the recipe",
            )
        try:
            loaded = onnx.load(str(exported.path))
        except (DecodeError, onnx.checker.ValidationError, ValueError) as problem:
            raise ConversionFailed(
                "export-failed",
                "the exporter did not write a readable ONNX file",
                evidence([f"{type(problem).__name__}: {problem}"]),
                "code in the model meddles with its own conversion",
            ) from problem
        proto = tensors_only(loaded, self.opset)
        probe = self.folder / "probe.onnx"
        onnx.save(proto, str(probe))
        ranks = {n: a.ndim for n, a in OnnxRuntimeRunner(probe).run(wire).items()}
        chains = {
            w.name: (Selection.parse(exported.answers[w.selection.answer]), w.selection) for w in self.wanted
        }
        indexed = {w.name: w.index_of for w in self.wanted if w.index_of is not None}
        passes = [select_outputs(chains, ranks), index_labels(indexed)]
        normalise(proto, self.recipe.name, passes)
        onnx.save(proto, str(probe))
        runner = OnnxRuntimeRunner(probe)
        answers = runner.run(wire)
        dependence = self.reference.rows_independent(self.tolerance)
        wants = self.recipe.serving.get("max_batch_size", DEFAULT_MAX_BATCH_SIZE) > 0
        signature, notes = _signature(
            self.model.feed.inputs(floats),
            answers,
            runner.run(take(wire, 0, 1)),
            rows(wire),
            dependence,
            wants_batches=wants,
        )
        finish(proto, signature)
        refuse_unloadable(proto, self.release)
        wrong, why = _differences(answers, self.reference.batched, self.tolerance)
        outcome = run_edges(runner, self.edge_requests(floats), self.edges, self.tolerance)
        return Candidate(floats, proto, signature, wrong, why, outcome, notes)


def _opset(recipe: Recipe, release: Release) -> int:
    if recipe.opset is None:
        return min(DEFAULT_OPSET, release.opset)
    if recipe.opset > release.opset:
        raise InputInvalid(
            "target-unfit",
            f"Triton {release.name} loads opset {release.opset} at most, the recipe asks for {recipe.opset}",
            (recipe_evidence(recipe, ("export", "opset"), f"its ONNX Runtime is {release.onnxruntime}"),),
            f"write opset: {release.opset}, or name a newer release under target:",
        )
    return recipe.opset


def refuse_unloadable(proto: Any, release: Release) -> None:
    """Make sure that a graph's opsets and IR version load on a release.

    Raises:
        ConversionFailed: They do not.
    """
    found = {("" if e.domain == "ai.onnx" else e.domain): e.version for e in proto.opset_import}
    limits = {"": release.opset, "ai.onnx.ml": release.ml_opset}
    wrong = [
        f"opset {version} of domain {domain or 'ai.onnx'}; the release loads {limits[domain]} at most"
        for domain, version in found.items()
        if domain in limits and version > limits[domain]
    ]
    if proto.ir_version > release.ir:
        wrong.append(f"IR version {proto.ir_version}; the release loads {release.ir} at most")
    if wrong:
        raise ConversionFailed(
            "graph-too-new",
            f"the graph does not load on Triton {release.name} (ONNX Runtime {release.onnxruntime})",
            evidence(wrong),
            "name a lower export: opset, or a newer release under target:",
        )


def _ask(source: RowsSource, samples: Samples, wanted: Sequence[Wanted], recipe: Recipe) -> Reference:
    texts = ", ".join(str(w.selection) for w in wanted)
    try:
        reference = ask_model(source, samples.given, wanted)
        empty = [name for name, answer in reference.batched.items() if not answer.size]
        reason = f"nothing is left of output '{empty[0]}'" if empty else ""
    except IndexError as problem:
        reason = str(problem)
    if reason:
        raise InputInvalid(
            "output-out-of-range",
            "an output takes a part that the model's answer does not have",
            (recipe_evidence(recipe, ("outputs",), f"{texts}: {reason}"),),
            "indexes count from 0, and the first axis holds the rows",
        )
    return reference


def _differences(got: Batch, want: Batch, tolerance: Tolerance) -> tuple[int, str]:
    """Values outside the bounds over all outputs, and the worst in words."""
    wrong, why = 0, ""
    for name, answer in want.items():
        outcome = compare(name, got[name], answer, tolerance.of(name))
        if not outcome.holds:
            wrong += max(outcome.wrong, 1)
            why = why or outcome.why or f"worst: {outcome.worst}"
    return wrong, why


def _signature(
    inputs: tuple[TensorSpec, ...],
    many: Batch,
    one: Batch,
    count: int,
    dependence: Deviation | str | None,
    *,
    wants_batches: bool,
) -> tuple[Signature, tuple[str, ...]]:
    """Types and shapes as they come out for all rows and for one, and whether there is a batch dimension."""
    outputs = tuple(
        TensorSpec(name, DType.of(answer.dtype), _free_axes(answer, one[name]))
        for name, answer in many.items()
    )
    notes: list[str] = []
    stray = [n for n, a in many.items() if len(a) != count or len(one[n]) != 1]
    if stray:
        notes.append(f"no batch dimension: output '{stray[0]}' does not have one row a sample")
    elif dependence is not None:
        notes.append(f"no batch dimension: an answer depends on the other rows ({dependence})")
    batched = wants_batches and not stray and dependence is None
    return Signature(inputs, outputs, batched), tuple(notes)


def _free_axes(many: Array, one: Array) -> tuple[int | None, ...]:
    return tuple(a if a == b else None for a, b in zip(many.shape, one.shape, strict=True))
