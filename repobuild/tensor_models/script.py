"""From a loaded model that takes named tensors to TorchScript that answers as it does on every request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repobuild.compare import compare
from repobuild.edge_check import edge_notes, run_edges
from repobuild.errors import ConversionFailed, Evidence, InputInvalid, RepobuildError, evidence, first_words
from repobuild.export import Graph
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import EXACT, Recipe, Tolerance
from repobuild.releases import Release
from repobuild.selection import Selection
from repobuild.sources.interface import ScriptExport, TensorSource
from repobuild.tensor_models.answers import ask_reference, script_outputs, tolerance_of
from repobuild.tensor_models.axes import Axes
from repobuild.tensor_models.fit import TensorSamples
from repobuild.tensor_models.load import LoadedTensors
from repobuild.tensor_models.reference import Asked
from repobuild.tensor_models.requests import resized
from repobuild.tensor_models.served import further_requests, largest_batch, warm_request
from repobuild.tensor_models.shapes import emitted_axes
from repobuild.tensors import Array, Batch, DType, Signature, TensorSpec

FOLDER = "script"
FILE = "model.pt"
TYPES = frozenset(
    (
        DType.BOOL,
        DType.UINT8,
        DType.INT8,
        DType.INT16,
        DType.INT32,
        DType.INT64,
        DType.FP16,
        DType.FP32,
        DType.FP64,
    )
)
"""Element types of Triton's PyTorch backend (ModelConfigDataTypeToTorchType in its src/libtorch_utils.cc)."""

BY_WAY = {
    "script": "the TorchScript was made by torch.jit.script, which keeps branches and loops",
    "trace": "the TorchScript was made by torch.jit.trace",
}


def export_script(
    source: TensorSource,
    model: LoadedTensors,
    recipe: Recipe,
    samples: TensorSamples,
    release: Release,
    folder: Path,
) -> Graph:
    """Ask the model for its answers, and make the first TorchScript that gives them to every request.

    The script of a module is its scripted form where that answers equally, else a trace, which is taken only
    where nothing that the module does depends on values. It is frozen where frozen answers are equal to the
    bit.

    Args:
        source: The loaded model.
        model: Its description.
        recipe: Names, selections and tolerances of the outputs.
        samples: The user's samples.
        release: The Triton release that it must load on.
        folder: Existing folder to work in.

    Raises:
        InputInvalid: The recipe asks for an answer, or a part of one, that the model has not.
        ConversionFailed: No TorchScript answers as the model does.
    """
    _refuse_options(recipe)
    maker = _Maker(source, model, recipe, samples, folder)
    script, way, notes = maker.best()
    asked, axes = maker.asked, model.axes
    requests = maker.requests
    outputs = maker.outputs(script)
    _refuse_types((*maker.inputs, *outputs))
    outcome = run_edges(maker.answering(script), requests, asked.edges, maker.tolerance)
    fixed = [d for d in script.devices if d != "cpu"]
    return Graph(
        path=script.path,
        signature=Signature(maker.inputs, outputs, asked.batched),
        wanted=maker.wanted,
        wire=maker.wire,
        reference=asked.reference,
        edges=asked.edges,
        edge_requests=requests,
        warm=warm_request(axes.feed, asked, maker.wire),
        tolerance=maker.tolerance,
        max_batch_size=largest_batch(recipe, axes) if asked.batched else 0,
        precision=(),
        notes=(
            *asked.notes,
            *maker.shown,
            BY_WAY[way],
            *notes,
            *_device_notes(recipe, script.devices, fixed),
            f"Triton {release.name} loads the TorchScript with its own PyTorch, which was not run here",
            *edge_notes(outcome),
        ),
        further=further_requests(requests, asked, largest_batch(recipe, axes)),
    )


@dataclass(frozen=True, slots=True)
class _Answers:
    """A script in the model's own process, as a runner."""

    source: TensorSource
    script: ScriptExport
    names: tuple[str, ...]

    def run(self, batch: Batch) -> Batch:
        found = self.source.ask_script(self.script, self.names, batch)
        if isinstance(found, str):
            raise ConversionFailed(
                "runtime-failed", "the TorchScript fails on the samples", evidence([found]), None
            )
        return found


class _Maker:
    """Makes scripts and compares them with the model."""

    def __init__(
        self,
        source: TensorSource,
        model: LoadedTensors,
        recipe: Recipe,
        samples: TensorSamples,
        folder: Path,
    ) -> None:
        self.source = source
        self.recipe = recipe
        self.axes = model.axes
        self.wanted = script_outputs(recipe, model)
        self.names = tuple(w.name for w in self.wanted)
        self.tolerance: Tolerance = tolerance_of(recipe, model)
        self.asked: Asked = ask_reference(
            source.ask, model.axes, samples, self.wanted, self.tolerance, recipe
        )
        self.shown = source.observed()
        batched, feed = self.asked.batched, model.axes.feed
        self.inputs = feed.specs(batched=batched)
        self.wire = feed.to_wire(self.asked.base, batched=batched)
        self.requests = tuple(feed.to_wire(p.request, batched=batched) for p in self.asked.probes)
        self.example = feed.to_wire(_example(model.axes, self.asked), batched=batched)
        self.home = folder / FOLDER
        self.home.mkdir(exist_ok=True)

    def best(self) -> tuple[ScriptExport, str, list[str]]:
        """The first script that answers as the model, how it was made, and what was decided."""
        notes: list[str] = []
        why: list[str] = []
        for way in self.source.script_ways():
            try:
                plain = self._made(way, freeze=False)
                wrong = self._differences(plain)
            except ConversionFailed as problem:
                if problem.code != "script-failed":
                    raise
                plain, wrong = None, first_words(problem)
            if plain is not None and not self._repeats():
                return plain, way, notes  # the checks tell of a model that answers otherwise each time
            if plain is not None and not wrong:
                notes.extend(f"torch.jit.{line}" for line in why)
                return (*self._frozen(way, plain, notes), notes)
            why.append(f"{way}: {wrong}")
        raise ConversionFailed(
            "script-unequal",
            "no TorchScript answers as the model does",
            evidence(why),
            "write what depends on sizes or values so that torch.jit.script takes it, or serve the model as"
            " ONNX: targets: [onnxruntime]",
        )

    def _repeats(self) -> bool:
        """Whether the model itself gives one answer to one request."""
        reference = self.asked.reference
        return all(
            compare(name, reference.again[name], want, self.tolerance.of(name)).holds
            for name, want in reference.batched.items()
        )

    def answering(self, script: ScriptExport) -> _Answers:
        """The script that was made last, as a runner."""
        return _Answers(self.source, script, self.names)

    def outputs(self, script: ScriptExport) -> tuple[TensorSpec, ...]:
        """The outputs; an axis is fixed if PyTorch derives it, or all answers have it where nothing does."""
        seen = list(self._answers())
        found = []
        for index, wanted in enumerate(self.wanted):
            shapes = [a[wanted.name].shape for a in seen]
            declared = script.shapes[index] if script.shapes is not None else shapes[0]
            axes = emitted_axes(declared, Selection(""), shapes, batched=self.asked.batched)
            found.append(TensorSpec(wanted.name, DType.of(seen[0][wanted.name].dtype), axes))
        return tuple(found)

    def _answers(self) -> Iterator[Mapping[str, Array]]:
        yield self.asked.reference.batched
        yield from (a for a in self.asked.edges.answers if not isinstance(a, str))

    def _made(self, way: str, *, freeze: bool) -> ScriptExport:
        batched = self.asked.batched
        wiring: dict[str, Any] = {
            "ranks": {i.name: len(i.axes) for i in self.axes.feed.inputs},
            "names": list(self.names),
            "outputs": [
                {"answer": w.selection.answer, "index": [_part(p) for p in w.selection.index]}
                for w in self.wanted
            ],
            "lowest": 2 if batched else 1,
        }
        (self.home / FILE).unlink(missing_ok=True)
        return self.source.make_script(way, self.home / FILE, self.example, wiring, freeze=freeze)

    def _frozen(self, way: str, plain: ScriptExport, notes: list[str]) -> tuple[ScriptExport, str]:
        """The frozen script where its answers are those of the plain one to the bit, else the plain one."""
        want = self._told(plain)
        try:
            frozen = self._made(way, freeze=True)
            got = self._told(frozen)
        except ConversionFailed as problem:
            notes.append(f"it was not frozen: {first_words(problem)}")
            return self._made(way, freeze=False), way
        unlike = any(
            isinstance(a, str) != isinstance(b, str)
            or (not isinstance(a, str) and not isinstance(b, str) and _unlike(a, b))
            for a, b in zip(got, want, strict=True)
        )
        if unlike:
            notes.append("it was not frozen, since frozen it answers otherwise in the last bits")
            return self._made(way, freeze=False), way
        notes.append("it was frozen: its answers are equal to the bit")
        return frozen, way

    def _told(self, script: ScriptExport) -> list[Batch | str]:
        return [self.source.ask_script(script, self.names, r) for r in (self.wire, *self.requests)]

    def _differences(self, script: ScriptExport) -> str:
        """Where a script differs from the model, empty where nowhere."""
        answers = self.answering(script)
        try:
            told = answers.run(self.wire)
        except RepobuildError as problem:
            return first_words(problem)
        for name, want in self.asked.reference.batched.items():
            outcome = compare(name, told[name], want, self.tolerance.of(name))
            if not outcome.holds:
                return f"its answers differ: {outcome.worst or outcome.why}"
        edges = run_edges(answers, self.requests, self.asked.edges, self.tolerance)
        if not edges.wrong:
            return ""
        about, told_wrong = edges.wrong[0]
        return f"its answers differ ({' '.join(about).strip()}): {told_wrong}"


def _example(axes: Axes, asked: Asked) -> Batch:
    """The samples with no free axis of size 1, since tracing takes such for ones that broadcast."""
    example: Batch = dict(asked.base)
    for label, size in axes.feed.sizes().items():
        larger = max(axes.sizes.get(label, (size,)))
        if size < 2 <= larger:
            example = resized(example, axes.feed.free(), label, larger)
    return example


def _part(part: slice | int) -> Any:
    return part if isinstance(part, int) else [part.start, part.stop, part.step]


def _unlike(one: Batch, other: Batch) -> bool:
    return any(not compare(n, one[n], a, EXACT).holds for n, a in other.items())


def _refuse_types(specs: Sequence[TensorSpec]) -> None:
    wrong = [s for s in specs if s.dtype not in TYPES]
    if wrong:
        raise ConversionFailed(
            "target-type",
            f"Triton's PyTorch backend has no {wrong[0].dtype.value} tensors, and '{wrong[0].name}' is one",
            tuple(Evidence(f"{s.name} is {s.dtype.value}") for s in wrong),
            "let the model take and give other types, or serve it as ONNX: targets: [onnxruntime]",
        )


def _refuse_options(recipe: Recipe) -> None:
    """Refuse what only an ONNX graph has.

    Raises:
        InputInvalid: ``option-unfit``.
    """
    given = [key for key in ("opset", "keep_inputs", "optimise") if recipe.export.get(key)]
    if given or recipe.opset is not None:
        key = (given or ["opset"])[0]
        raise InputInvalid(
            "option-unfit",
            f"export: {key} is about ONNX graphs, and the target '{recipe.targets[0].kind}' has none",
            (recipe_evidence(recipe, ("export", key), "is given"),),
            "leave it out",
        )


def _device_notes(recipe: Recipe, devices: Sequence[str], fixed: Sequence[str]) -> list[str]:
    """What the code says of devices, where that matters."""
    if fixed:
        return [f"the code of the TorchScript names the device {', '.join(fixed)}"]
    groups = recipe.serving.get("instance_group") or ()
    wants = any(isinstance(g, Mapping) and "GPU" in str(g.get("kind", "KIND_AUTO")) for g in groups)
    if devices and wants:
        said = "the code of the TorchScript makes tensors on the cpu, which instances on a GPU may fail on"
        return [f"{said}; make them with device=x.device"]
    return []
