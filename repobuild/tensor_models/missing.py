"""Missing numbers: NaN among the inputs, which each runtime treats in its own way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from repobuild.compare import compare
from repobuild.errors import RepobuildError, first_words
from repobuild.recipe.types import Tolerance
from repobuild.runners.interface import Runnable
from repobuild.tensor_models.feed import TensorFeed
from repobuild.tensors import Array, Batch


@dataclass(frozen=True, slots=True)
class Missing:
    """A request with missing numbers.

    Attributes:
        request: One array an input, in the shapes that the model takes.
        told: What the model says to it: its outputs, or why it refuses.
    """

    request: Batch
    told: Mapping[str, Array] | str


def with_missing(feed: TensorFeed, request: Batch) -> dict[str, Array] | None:
    """The samples with one number of each row missing, a row's neighbour lacking another one.

    Args:
        feed: The inputs.
        request: The samples.

    Returns:
        The request; ``None`` where no number can be missing, or some are already.
    """
    import numpy as np

    found: dict[str, Array] = {}
    for item in feed.inputs:
        array = request[item.name]
        if array.dtype.kind != "f" or not array.size:
            continue
        if np.isnan(array).any():
            return None
        rows = array.copy().reshape(len(array) if array.ndim else 1, -1)
        rows[np.arange(len(rows)), np.arange(len(rows)) % rows.shape[1]] = np.nan
        found[item.name] = rows.reshape(array.shape)
    return {**request, **found} if found else None


def missing_notes(
    missing: Missing | None, runner: Runnable, feed: TensorFeed, tolerance: Tolerance, *, batched: bool
) -> Iterator[str]:
    """Where a graph treats missing numbers otherwise than the model, which clients must know.

    Args:
        missing: The request; ``None`` for nothing to say.
        runner: The graph, loaded.
        feed: The inputs.
        tolerance: Bounds by output.
        batched: Whether the graph has a batch dimension.
    """
    if missing is None:
        return
    advice = "check such values before they are sent"
    try:
        got = runner.run(feed.to_wire(missing.request, batched=batched))
    except RepobuildError as problem:
        if not isinstance(missing.told, str):
            yield (
                "requests with missing numbers (NaN): the model answers them, the served model fails"
                f" ({first_words(problem)}); {advice}"
            )
        return
    if isinstance(missing.told, str):
        yield (
            f"requests with missing numbers (NaN): the model refuses them ({missing.told}), the served model"
            f" answers them; {advice}"
        )
        return
    for name, want in missing.told.items():
        outcome = compare(name, got[name], want, tolerance.of(name))
        if not outcome.holds:
            yield (
                "requests with missing numbers (NaN) are answered otherwise than by the model"
                f" ({outcome.worst or outcome.why}); {advice}"
            )
            return
