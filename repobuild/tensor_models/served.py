"""What a server is asked: the largest batch, the request of the warm-up, requests of further sizes."""

from __future__ import annotations

from collections.abc import Sequence

from repobuild.errors import InputInvalid
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.tensor_models.axes import Axes
from repobuild.tensor_models.feed import TensorFeed
from repobuild.tensor_models.load import wanted_batch
from repobuild.tensor_models.reference import Asked
from repobuild.tensors import Batch, take


def largest_batch(recipe: Recipe, axes: Axes) -> int:
    """The recipe's max_batch_size within the bounds of the file.

    Raises:
        InputInvalid: ``serving-unfit``: the recipe asks for more.
    """
    want, most = wanted_batch(recipe), axes.bounds[1]
    if most is None or want <= most:
        return want
    if "max_batch_size" in recipe.serving:
        raise InputInvalid(
            "serving-unfit",
            f"max_batch_size {want} is more than the model's file takes, which is {most} rows",
            (recipe_evidence(recipe, ("serving", "max_batch_size"), f"the file's bound is {most}"),),
            f"write max_batch_size: {most}, or export the program with a larger bound",
        )
    return most


def warm_request(feed: TensorFeed, asked: Asked, wire: Batch) -> Batch:
    """A request for warm-up: of one row where there are rows."""
    if asked.batched:
        return take(wire, 0, 1)
    for probe, answer in zip(asked.probes, asked.edges.answers, strict=True):
        if feed.batch and probe.about == ("size", f"{feed.batch} = 1") and not isinstance(answer, str):
            return feed.to_wire(probe.request, batched=False)
    return wire


def further_requests(
    requests: Sequence[Batch], asked: Asked, largest: int
) -> tuple[tuple[Batch, Batch], ...]:
    """Requests of other sizes, to be replayed through the server."""
    found = []
    for probe, request, answer in zip(asked.probes, requests, asked.edges.answers, strict=True):
        if probe.about[0] != "size" or isinstance(answer, str):
            continue
        whole = not asked.batched
        found.append((request, answer) if whole else (take(request, 0, largest), take(answer, 0, largest)))
    return tuple(found)
