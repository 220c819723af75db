"""The model's own answers: to the samples, to rows alone, and to every request that was made from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from repobuild.checks import Reference, spread
from repobuild.compare import compare, magnitude
from repobuild.edge_check import JUMP, EdgeReference
from repobuild.errors import InputInvalid, evidence
from repobuild.outputs import Wanted
from repobuild.recipe.types import Tolerance
from repobuild.tensor_models.axes import Ask, Axes
from repobuild.tensor_models.feed import TensorFeed
from repobuild.tensor_models.fit import TensorSamples
from repobuild.tensor_models.missing import Missing, with_missing
from repobuild.tensor_models.requests import Probe, beside, resized, size_probes, value_probes
from repobuild.tensors import Array, Batch, take

LEAST_ROWS = 4
"""Rows that are compared at least; where there are fewer, more are made of their values."""

ALONE_ROWS = 16
"""Rows that are also asked one by one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked, and what the model said.

    Attributes:
        base: The samples, perhaps with further rows.
        reference: The answers to them, under the names of the outputs.
        probes: Further requests.
        edges: The model's words on them.
        batched: Whether Triton may fill a batch dimension.
        notes: Why not, and other things that were decided.
        missing: A request with missing numbers, where the samples hold none.
    """

    base: Batch
    reference: Reference
    probes: tuple[Probe, ...]
    edges: EdgeReference
    batched: bool
    notes: tuple[str, ...]
    missing: Missing | None = None


def ask_all(
    ask: Ask,
    axes: Axes,
    samples: TensorSamples,
    wanted: Sequence[Wanted],
    tolerance: Tolerance,
    *,
    wants_batches: bool,
    keep_rows: bool,
) -> Asked:
    """Ask the model everything that its graph is compared on.

    Args:
        ask: Asks the model.
        axes: Its axes.
        samples: The samples.
        wanted: The outputs to serve.
        tolerance: Bounds within which an answer is the same.
        wants_batches: Whether the recipe wants a batch dimension.
        keep_rows: Whether the rows must stay those of the samples, since labels belong to them.

    Raises:
        InputInvalid: The model refuses what it answered before, or a selection does not fit.
    """
    feed = axes.feed
    notes: list[str] = []
    base = samples.given if keep_rows else _enough(ask, feed, samples.given, notes)
    possible = wants_batches and feed.rows_first and _bounds_allow(axes, notes)
    count = _count(feed, base)
    chosen = spread(count, ALONE_ROWS) if feed.rows_first else ()
    rows = [take(base, i, i + 1) for i in chosen]
    first, second, *single = ask([base, base, *rows])
    batched_answers, again = _named(first, wanted), _named(second, wanted)
    alone = [_named(s, wanted) for s in single] if not any(isinstance(s, str) for s in single) else []
    stray = _stray(batched_answers, alone, count) if possible else ""
    if stray:
        notes.append(
            f"no batch dimension: output '{stray}' does not have one row a sample (no batch axis);"
            " max_batch_size is 0"
        )
    if possible and chosen and not alone:
        refused = next(s for s in single if isinstance(s, str))
        notes.append(f"no batch dimension: the model refuses a row alone ({refused}); max_batch_size is 0")
    possible = possible and not stray and bool(alone)
    reference = Reference(
        {n: _rows(a, possible) for n, a in batched_answers.items()},
        chosen if possible else (),
        _stacked(alone) if possible else {},
        {n: _rows(a, possible) for n, a in again.items()},
    )
    if possible:
        dependence = reference.rows_independent(tolerance)
        if dependence is not None:
            possible = False
            notes.append(
                f"no batch dimension: an answer depends on the other rows of the batch ({dependence})"
            )
    notes.extend(_hollow(base, reference.batched))
    probes = (*size_probes(feed, base, axes.sizes), *value_probes(feed, base))
    if feed.rows_first and count > 1 and not any("= 1" in p.about[1] for p in probes):
        probes = (Probe(("size", f"{feed.batch} = 1"), take(base, 0, 1)), *probes)
    told = [
        answer
        if isinstance(answer, str)
        else {n: _rows(a, possible) for n, a in _named(answer, wanted).items()}
        for answer in ask([p.request for p in probes])
    ]
    if not possible:
        reference = Reference(
            {n: _rows(a, False) for n, a in batched_answers.items()},
            (),
            {},
            {n: _rows(a, False) for n, a in again.items()},
        )
    probes = tuple(_on_jumps(ask, base, probes, told, wanted, tolerance, possible))
    if samples.first:
        (latest,) = ask([samples.given])
        reference = replace(reference, earliest=_named(samples.first, wanted), latest=_named(latest, wanted))
    sizes = {name: magnitude(answer) for name, answer in batched_answers.items()}
    edges = EdgeReference(tuple(p.about for p in probes), tuple(told), sizes)
    missing = _missing(ask, feed, base, wanted, possible)
    return Asked(base, reference, probes, edges, possible, tuple(notes), missing)


def _missing(
    ask: Ask, feed: TensorFeed, base: Batch, wanted: Sequence[Wanted], batched: bool
) -> Missing | None:
    request = with_missing(feed, base)
    if request is None:
        return None
    (answer,) = ask([request])
    if isinstance(answer, str):
        return Missing(request, answer)
    return Missing(request, {n: _rows(a, batched) for n, a in _named(answer, wanted).items()})


def _on_jumps(
    ask: Ask,
    base: Batch,
    probes: Sequence[Probe],
    told: Sequence[Mapping[str, Array] | str],
    wanted: Sequence[Wanted],
    tolerance: Tolerance,
    batched: bool,
) -> Iterator[Probe]:
    """The probes, those of all equal values marked where the model's own answer jumps.

    Among equal values an order is anybody's choice, so that a graph may take another one.
    """
    for probe, answer in zip(probes, told, strict=True):
        if probe.about[0] != "zeros" or isinstance(answer, str):
            yield probe
            continue
        moved = ask(beside(base, probe))
        near = [_named(m, wanted) for m in moved if not isinstance(m, str)]
        jumps = any(
            not compare(name, _rows(found[name], batched), want, tolerance.of(name)).holds
            for found in near
            for name, want in answer.items()
        )
        yield replace(probe, about=(JUMP, "")) if jumps else probe


def _enough(ask: Ask, feed: TensorFeed, given: Batch, notes: list[str]) -> Batch:
    count = _count(feed, given)
    if feed.batch is None or not feed.rows_first or count >= LEAST_ROWS:
        return given
    more = resized(given, feed.free(), feed.batch, LEAST_ROWS)
    (answer,) = ask([more])
    if isinstance(answer, str):
        return given
    notes.append(
        f"the samples hold {count} row{'s' if count > 1 else ''}; {LEAST_ROWS - count} more were made of"
        " their values, and some hundred real ones would check more"
    )
    return more


def _bounds_allow(axes: Axes, notes: list[str]) -> bool:
    low, _ = axes.bounds
    if low > 1:
        notes.append(
            f"no batch dimension: the file takes batches of at least {low} rows; max_batch_size is 0"
        )
    return low <= 1


def _hollow(base: Batch, answers: Batch) -> Iterator[str]:
    """Notes on answers that are no numbers: NaN equals NaN, so that comparing them shows little."""
    import numpy as np

    clean = all(np.isfinite(a).all() for a in base.values() if a.dtype.kind == "f")
    for name, answer in answers.items():
        count = int((~np.isfinite(answer)).sum()) if answer.dtype.kind == "f" else 0
        if count and (clean or count == answer.size):
            share = "all" if count == answer.size else f"{count} of {answer.size}"
            yield (
                f"output '{name}': the model itself answers the samples with NaN or infinity ({share} of the"
                " values), and so does the served model; see whether weights and samples are right"
            )


def _count(feed: TensorFeed, request: Batch) -> int:
    if feed.batch is None:
        return 1
    item = next(i for i in feed.inputs if i.axis_of(feed.batch) is not None)
    axis = item.axis_of(feed.batch)
    assert axis is not None
    return int(request[item.name].shape[axis])


def _named(answer: Batch | str, wanted: Sequence[Wanted]) -> dict[str, Array]:
    """The outputs among an answer.

    Raises:
        InputInvalid: It is a refusal, or lacks one.
    """
    if isinstance(answer, str):
        raise InputInvalid(
            "samples-refused",
            "the model's own forward refuses what it took before",
            evidence([answer]),
            "a model that keeps a state between calls cannot be served as it is",
        )
    absent = [w.selection.answer for w in wanted if w.selection.answer not in answer]
    if absent:
        raise InputInvalid(
            "output-varies",
            f"the model does not always answer with '{absent[0]}'",
            evidence([f"to another request it answers with {', '.join(answer)}"]),
            "let forward return the same structure for all inputs",
        )
    return {w.name: w.of(answer) for w in wanted}


def _stray(batched: Mapping[str, Array], alone: Sequence[Mapping[str, Array]], count: int) -> str:
    """The first output that does not have one row a sample, empty if all do."""
    for name, array in batched.items():
        lone = [a[name] for a in alone]
        if array.ndim == 0 or len(array) != count or any(a.ndim == 0 or len(a) != 1 for a in lone):
            return name
        if any(a.shape[1:] != lone[0].shape[1:] for a in lone):
            return name
    return ""


def _rows(array: Array, batched: bool) -> Array:
    """The array with the axes that are emitted: two at least with a batch axis, else one."""
    lowest = 2 if batched else 1
    return array.reshape(*array.shape, *[1] * (lowest - array.ndim))


def _stacked(alone: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    import numpy as np

    return {name: _rows(np.concatenate([a[name] for a in alone]), True) for name in alone[0]}
