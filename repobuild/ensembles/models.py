"""Models as steps: the ordinary pipeline, with what the steps before make as its samples."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from repobuild import pipeline
from repobuild.artifact import Artifact
from repobuild.build import Ledger, Order
from repobuild.emit.workshop import Workshop
from repobuild.ensembles.interface import Made
from repobuild.ensembles.requests import pieces
from repobuild.errors import Evidence, InputInvalid
from repobuild.export import Graph
from repobuild.prepare import refuse_early, target_release
from repobuild.recipe.ensemble_types import ModelStep
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.recipe.wiring import STEPS
from repobuild.tensors import Batch, DType, Signature, rows, take
from repobuild.worker.arrays import writing

SAMPLES = "samples.npz"
GIVEN = "tensors of the ensemble"


@dataclass(frozen=True, slots=True)
class MadeModel:
    """A model step, and what is staged of it.

    Attributes:
        made: The step, built and asked.
        recipe: Its recipe as it was built.
        artifact: What the server loads.
        graph: The graph that it was compiled from.
    """

    made: Made
    recipe: Recipe
    artifact: Artifact
    graph: Graph


def step_recipe(whole: Recipe, step: ModelStep) -> Recipe:
    """The step's recipe under its name in the repository, with the batches and the release of the whole.

    Raises:
        InputInvalid: It allows smaller batches than the whole.
    """
    largest = int(whole.serving["max_batch_size"])
    serving: Mapping[str, Any] = step.recipe.serving
    own = int(serving.get("max_batch_size", largest))
    if (own > 0) != (largest > 0) or own < largest:
        raise InputInvalid(
            "step-batch",
            f"its recipe says max_batch_size {own}, the ensemble's {largest}",
            (recipe_evidence(step.recipe, ("serving", "max_batch_size"), f"must be at least {largest}"),),
            "leave it out there, and set it for the whole",
        )
    return replace(
        step.recipe,
        name=step.model,
        samples=None,
        samples_given="",
        serving={**serving, "max_batch_size": own},
        target=whole.target or step.recipe.target,
    )


def make_model(order: Order, step: ModelStep, feeds: Batch, ledger: Ledger, shop: Workshop) -> MadeModel:
    """Load, export, compile and check a model on what the steps before made of the samples.

    Args:
        order: What is being built, with the recipe of the ensemble.
        step: The step.
        feeds: Its inputs under its own names, all samples in one array each.
        ledger: Where findings go; its recipe is that of :func:`step_recipe`.
        shop: The step's part of the workshop.

    Raises:
        RepobuildError: The model cannot be built, or has no batch dimension where the whole has one.
    """
    with writing("the samples of a step"):
        _save(shop.work / SAMPLES, feeds)
    recipe = replace(ledger.recipe, samples=shop.work / SAMPLES, samples_given=GIVEN)
    ledger.recipe = recipe
    refuse_early(replace(order, recipe=recipe))
    release = target_release(recipe)
    ledger.found_target(release)
    artifact, graph, _ = pipeline.make(ledger, release, shop)
    _refuse_unbatched(order.recipe, step, graph)
    if step.recipe.samples is not None:
        told = f"it was checked on {GIVEN}; the samples of its own recipe are for building it alone"
        ledger.found_notes((told,))
    signature = artifact.signature
    _refuse_unknown_outputs(order.recipe, step, tuple(o.name for o in signature.outputs))
    batched = signature.batched
    count = rows(feeds) if batched else 0

    def of_samples(batch: Batch) -> Batch:
        """Without the rows that were added to check more."""
        return take(batch, 0, count) if batched else batch

    wire, want = of_samples(graph.wire), of_samples(graph.reference.batched)
    both = pieces(
        {**{f"i/{n}": a for n, a in wire.items()}, **{f"o/{n}": a for n, a in want.items()}},
        graph.max_batch_size,
    )
    requests = tuple(({n: p[f"i/{n}"] for n in wire}, {n: p[f"o/{n}"] for n in want}) for p in both)
    made = Made(
        step,
        signature.inputs,
        signature.outputs,
        _as_served(want, signature),
        requests,
        graph.tolerance,
        ledger,
    )
    return MadeModel(made, recipe, artifact, graph)


def _as_served(answers: Batch, signature: Signature) -> Batch:
    """The model's own answers in the types that the next step gets; estimators compute in float64."""
    return {
        spec.name: answers[spec.name]
        if spec.dtype is DType.BYTES
        else answers[spec.name].astype(spec.dtype.numpy, copy=False)
        for spec in signature.outputs
    }


def _save(path: Path, arrays: Batch) -> None:
    """An npz file; ``numpy.savez`` would take an array called ``file`` for its own argument."""
    import numpy as np

    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)


def _refuse_unbatched(whole: Recipe, step: ModelStep, graph: Graph) -> None:
    largest = int(whole.serving["max_batch_size"])
    if graph.max_batch_size >= largest:
        return
    why = [n for n in graph.notes if "batch" in n] or [f"its max_batch_size is {graph.max_batch_size}"]
    raise InputInvalid(
        "step-batch",
        f"it takes batches of at most {graph.max_batch_size} rows, and the ensemble allows {largest}"
        if graph.max_batch_size
        else "it has no batch dimension, and the ensemble has one",
        (*(Evidence(n) for n in why), recipe_evidence(whole, ("serving", "max_batch_size"), str(largest))),
        f"set serving: {{max_batch_size: {graph.max_batch_size}}} for the whole",
    )


def _refuse_unknown_outputs(whole: Recipe, step: ModelStep, outputs: tuple[str, ...]) -> None:
    for key in step.output_map:
        if key not in outputs:
            place = (*STEPS, step.index, "output_map", key)
            raise InputInvalid(
                "step-unjoined",
                f"it has no output '{key}'",
                (recipe_evidence(whole, place, f"it answers with {', '.join(outputs)}"),),
                "use the names of its outputs",
            )
