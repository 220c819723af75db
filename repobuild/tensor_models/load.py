"""Loads a model that takes named tensors, reads its samples, and finds out which axes are free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from repobuild.artifact import Tool
from repobuild.errors import Evidence, InputInvalid
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import DEFAULT_MAX_BATCH_SIZE, Recipe
from repobuild.samples.read import read_table
from repobuild.samples.table import Table
from repobuild.sources.interface import TensorArgument, TensorDescription, TensorSource
from repobuild.tensor_models.axes import Axes, find_axes
from repobuild.tensor_models.feed import TensorFeed
from repobuild.tensor_models.fit import TensorSamples, fit_tensors
from repobuild.tensors import Array, Batch, TensorSpec


@dataclass(frozen=True, slots=True)
class LoadedTensors:
    """A loaded model.

    Attributes:
        model: What it is.
        facts: JSON-ready facts for the report.
        tools: Versions of the framework and of what exports it.
        axes: Its inputs and their axes.
        answers: Names of its answers.
        single: The same with axis 0 as the batch axis, for a file that fixes it to 1; ``None`` else.
    """

    model: str
    facts: dict[str, Any]
    tools: tuple[Tool, ...]
    axes: Axes
    answers: tuple[str, ...]
    single: Axes | None = None

    @property
    def feed(self) -> TensorFeed:
        """Its inputs."""
        return self.axes.feed

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Its inputs as they are emitted without a batch dimension."""
        return self.feed.specs(batched=False)


def wanted_batch(recipe: Recipe) -> int:
    """The recipe's ``max_batch_size``."""
    return int(recipe.serving.get("max_batch_size", DEFAULT_MAX_BATCH_SIZE))


def load_tensors(recipe: Recipe, source: TensorSource) -> tuple[LoadedTensors, TensorSamples]:
    """Load the model, read the samples, and find the free axes.

    Raises:
        RepobuildError: The model does not load, the samples do not fit it, or it refuses them.
    """
    table = _table(recipe)
    described = source.describe_tensors(recipe, table.layout() if table else None)
    if table is None and described.arguments:
        raise InputInvalid(
            "samples-needed",
            f"only samples tell which values {described.model} takes",
            (recipe_evidence(recipe, (), "samples: is missing"),),
            "save an npz file with one array an input, and name it under samples:",
        )
    given, notes = fit_tensors(recipe, table, described) if table else ({}, ["the model takes no inputs"])
    given, first, said = _accepted(recipe, source, described, given)
    notes.extend(said)
    want = wanted_batch(recipe)
    axes = find_axes(recipe, described.arguments, given, source.ask, want)
    single = None
    if axes.feed.batch is None and want > 0 and _fixed_to_one(described.arguments, given):
        single = _freed(recipe, described, given, source, want)
    loaded = LoadedTensors(
        described.model,
        {**described.facts, "answers": dict.fromkeys(first, "forward"), "labels": []},
        described.tools,
        axes,
        tuple(first),
        single,
    )
    feed = axes.feed
    count = feed.sizes()[feed.batch] if feed.batch else 1
    read = (table.digest, table.notes) if table else ("", ())
    return loaded, TensorSamples(given, count, read[0], (*read[1], *notes, *axes.notes), first)


def _table(recipe: Recipe) -> Table | None:
    if recipe.samples is None:
        return None
    try:
        return read_table(recipe.samples, recipe.samples_given)
    except InputInvalid as problem:
        place = recipe_evidence(recipe, ("samples",), recipe.samples_given)
        raise InputInvalid(problem.code, problem.message, (*problem.evidence, place), problem.hint) from None


def _accepted(
    recipe: Recipe, source: TensorSource, model: TensorDescription, given: dict[str, Array]
) -> tuple[dict[str, Array], Batch, list[str]]:
    """The samples in types that the model answers, and its answers; float64, the default, may be narrowed.

    Raises:
        InputInvalid: The model refuses them either way.
    """
    import numpy as np

    (first,) = source.ask([given])
    if not isinstance(first, str):
        return given, first, []
    wide = [a.name for a in model.arguments if a.dtype is None and given[a.name].dtype == np.float64]
    if wide:
        narrow = {n: a.astype(np.float32) if n in wide else a for n, a in given.items()}
        (second,) = source.ask([narrow])
        if not isinstance(second, str):
            names = ", ".join(wide)
            return (
                narrow,
                second,
                [f"the samples for {names} are float64, which the model refuses; they are sent as FP32"],
            )
    raise InputInvalid(
        "samples-refused",
        "the model's own forward refuses the samples",
        (
            Evidence(first),
            *(Evidence(f"{n} is {a.dtype} of shape {list(a.shape)}") for n, a in given.items()),
            recipe_evidence(recipe, ("samples",), recipe.samples_given),
        ),
        "the samples must be a batch as the model takes it; export: {sample_dtype: {input: float16}} converts"
        " types",
    )


def _fixed_to_one(arguments: Sequence[TensorArgument], given: Mapping[str, Array]) -> bool:
    """Whether a file fixes axis 0 of every input to 1, as exporters do that saw one row."""
    return bool(arguments) and all(
        a.shape and a.shape[0] == 1 and given[a.name].shape[0] == 1 for a in arguments
    )


def _freed(
    recipe: Recipe,
    described: TensorDescription,
    given: Mapping[str, Array],
    source: TensorSource,
    want: int,
) -> Axes:
    """The axes as they would be if axis 0 were the batch; the model itself is asked row by row."""
    arguments = [replace(a, shape=("batch", *a.shape[1:])) for a in described.arguments]
    return find_axes(recipe, arguments, given, RowByRow(source.ask).ask, want)


class RowByRow:
    """Asks a model that takes one row at a time for several.

    Args:
        ask: Asks the model.
    """

    def __init__(self, ask: Any) -> None:
        self._ask = ask

    def ask(self, requests: Sequence[Batch]) -> list[Batch | str]:
        """The answers to each request: those to its rows, stacked; or why the first row is refused."""
        import numpy as np

        counts = [len(next(iter(r.values()))) for r in requests]
        flat = [
            {name: array[i : i + 1] for name, array in request.items()}
            for request, count in zip(requests, counts, strict=True)
            for i in range(count)
        ]
        answered = iter(self._ask(flat))
        found: list[Batch | str] = []
        for count in counts:
            rows = [next(answered) for _ in range(count)]
            refused = next((r for r in rows if isinstance(r, str)), None)
            if refused is not None:
                found.append(refused)
                continue
            good = [r for r in rows if not isinstance(r, str)]
            if any(a.ndim == 0 for r in good for a in r.values()):
                found.append("an answer has no axis that could hold rows")
                continue
            found.append({name: np.concatenate([r[name] for r in good]) for name in good[0]})
        return found
