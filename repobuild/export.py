"""From a loaded model to an ONNX file in normal form that answers with what the recipe asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from repobuild.checks import Reference, ask_model
from repobuild.errors import InputInvalid
from repobuild.graph.normal import finish, normalise, tensors_only
from repobuild.graph.outputs import select_outputs
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import DEFAULT_MAX_BATCH_SIZE, OutputRecipe, Recipe, Tolerance
from repobuild.report import Deviation
from repobuild.runners.onnxruntime import OnnxRuntimeRunner
from repobuild.samples import Samples
from repobuild.selection import Selection
from repobuild.sources.interface import Description, Exported, Source
from repobuild.tensors import Batch, DType, Signature, TensorSpec, take

DEFAULT_OPSET = 17
"""Opset of the default domain when the recipe names none; ONNX Runtime 1.12 and Triton 22.07 know it."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A model as ONNX in normal form.

    Attributes:
        path: The ONNX file.
        signature: Its tensors.
        reference: The model's own answers under the names of the outputs.
        tolerance: The recipe's, with equality for class labels.
        max_batch_size: What config.pbtxt may say; 0 without a batch dimension.
        notes: What was decided for the user.
    """

    path: Path
    signature: Signature
    reference: Reference
    tolerance: Tolerance
    max_batch_size: int
    notes: tuple[str, ...]


def export_graph(source: Source, model: Description, recipe: Recipe, samples: Samples, folder: Path) -> Graph:
    """Export a model, bring it into normal form, and ask the model for its answers.

    Args:
        source: The loaded model.
        model: Its description.
        recipe: Names, selections and tolerances of the outputs.
        samples: The user's rows.
        folder: Existing folder to work in.

    Raises:
        InputInvalid: The recipe asks for an answer, or a part of one, that the model has not.
        ConversionFailed: The exporter or ONNX Runtime cannot do it.
    """
    import onnx

    opset = recipe.opset or DEFAULT_OPSET
    exported = source.export(opset, folder / "exported.onnx")
    wanted = _wanted_outputs(recipe, exported, model)
    reference = _ask(source, samples, wanted, recipe)
    labels = set(model.facts["labels"])
    tolerance = recipe.tolerance.with_exact(name for name, w in wanted.items() if w.answer in labels)
    proto = tensors_only(onnx.load(str(exported.path)), opset)
    probe = folder / "probe.onnx"
    onnx.save(proto, str(probe))
    ranks = {name: answer.ndim for name, answer in OnnxRuntimeRunner(probe).run(samples.wire).items()}
    chains = {name: (Selection.parse(exported.answers[w.answer]), w) for name, w in wanted.items()}
    normalise(proto, recipe.name, [select_outputs(chains, ranks)])
    onnx.save(proto, str(probe))
    wants_batches = recipe.serving.get("max_batch_size", DEFAULT_MAX_BATCH_SIZE) > 0
    dependence = reference.rows_independent(tolerance)
    signature, notes = _signature(
        OnnxRuntimeRunner(probe), model, samples.wire, dependence, wants_batches=wants_batches
    )
    finish(proto, signature)
    path = folder / "graph.onnx"
    path.write_bytes(proto.SerializeToString(deterministic=True))
    size = recipe.serving.get("max_batch_size", DEFAULT_MAX_BATCH_SIZE)
    return Graph(path, signature, reference, tolerance, size if signature.batched else 0, notes)


def _wanted_outputs(recipe: Recipe, exported: Exported, model: Description) -> dict[str, Selection]:
    """``{output name: selection of an answer}``, checked against the answers that there are."""
    known = ", ".join(exported.answers)
    outputs = recipe.outputs or tuple(OutputRecipe(name) for name in exported.answers)
    wanted: dict[str, Selection] = {}
    for index, output in enumerate(outputs):
        selection = Selection.parse(output.take) if output.take else Selection(output.name)
        if selection.answer not in exported.answers:
            key = "from" if output.take else "name"
            raise InputInvalid(
                "output-unknown",
                f"the model has no answer '{selection.answer}'",
                (recipe_evidence(recipe, ("outputs", index, key), f"{model.model} answers with {known}"),),
                f"take one of {known}, for instance from: {next(iter(exported.answers))}",
            )
        wanted[output.name] = selection
    inputs = {i.name for i in model.inputs}
    for index, name in enumerate(wanted):
        if name in inputs:
            raise InputInvalid(
                "output-named-as-input",
                f"'{name}' is the name of an input and of an output",
                (recipe_evidence(recipe, ("outputs", index, "name"), "also the name of an input"),),
                "give the output another name",
            )
    for name in recipe.tolerance.by_output:
        if name not in wanted:
            raise InputInvalid(
                "tolerance-unknown",
                f"tolerance: names '{name}', which is not an output",
                (recipe_evidence(recipe, ("tolerance", name), f"outputs are {', '.join(wanted)}"),),
                "use the name of an output, or atol and rtol for all outputs",
            )
    return wanted


def _ask(source: Source, samples: Samples, wanted: Mapping[str, Selection], recipe: Recipe) -> Reference:
    texts = ", ".join(str(w) for w in wanted.values())
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


def _signature(
    runner: OnnxRuntimeRunner,
    model: Description,
    wire: Batch,
    dependence: Deviation | str | None,
    *,
    wants_batches: bool,
) -> tuple[Signature, tuple[str, ...]]:
    """Types and shapes as they come out for all rows and for one, and whether there is a batch dimension."""
    many, one = runner.run(wire), runner.run(take(wire, 0, 1))
    count = len(next(iter(wire.values())))
    outputs = tuple(
        TensorSpec(
            name,
            DType.of(answer.dtype),
            tuple(a if a == b else None for a, b in zip(answer.shape, one[name].shape, strict=True)),
        )
        for name, answer in many.items()
    )
    notes: list[str] = []
    stray = [n for n, a in many.items() if len(a) != count or len(one[n]) != 1]
    if stray:
        notes.append(f"no batch dimension: output '{stray[0]}' does not have one row a sample")
    elif dependence is not None:
        notes.append(f"no batch dimension: an answer depends on the other rows ({dependence})")
    batched = wants_batches and not stray and dependence is None
    return Signature(model.inputs, outputs, batched), tuple(notes)
