"""The comparisons between a model and an artifact made from it, before any server is involved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from repobuild.compare import Comparison, as_rows, compare
from repobuild.outputs import Wanted
from repobuild.recipe.types import EXACT, Bounds, Tolerance
from repobuild.report import Check, Deviation, Fail, Pass, Skip
from repobuild.runners.interface import Runnable
from repobuild.sources.interface import RowsSource
from repobuild.tensors import Array, Batch, DType, Signature, take

REPEATS = ("model repeats itself", "artifact repeats itself")
"""Checks that tell why others fail: what answers otherwise each time differs from anything."""

ALONE_ROWS = 64
"""Rows that are also asked one by one, spread evenly over the samples."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What the model itself answers, under the names of the emitted outputs.

    Attributes:
        batched: Answers to all rows in one call.
        alone_rows: Rows that were also asked alone.
        alone: Answers to those rows.
        again: Answers to all rows in a second call.
        earliest: Answers of the first call of all, where it was kept.
        latest: Answers to the same request after all others.
    """

    batched: Batch
    alone_rows: tuple[int, ...]
    alone: Batch
    again: Batch
    earliest: Batch = field(default_factory=dict)
    latest: Batch = field(default_factory=dict)

    def rows_independent(self, tolerance: Tolerance) -> Deviation | str | None:
        """Why a row's answer depends on the other rows, ``None`` when it does not.

        A model that answers differently each time shows nothing about that; a check of its own refuses it.
        """
        if _unlike(self.again, self.batched, tolerance.of):
            return None
        for name, want in self.alone.items():
            got = self.batched[name]
            if len(got) != _count(self.again):
                return f"output '{name}' has {len(got)} rows for {_count(self.again)} samples"
            outcome = compare(name, as_rows(got)[list(self.alone_rows)], want, tolerance.of(name))
            if not outcome.holds:
                return outcome.worst or outcome.why
        return None


def ask_model(source: RowsSource, samples: Batch, wanted: Sequence[Wanted]) -> Reference:
    """Ask the model for all rows, for some rows alone, and for all rows again.

    Args:
        source: The loaded model.
        samples: Rows in the samples' own types.
        wanted: The outputs to serve.

    Raises:
        InputInvalid: The model refuses the rows, or a selection does not fit its answers.
    """
    count = len(next(iter(samples.values())))
    chosen = spread(count, ALONE_ROWS)
    some = {name: array[list(chosen)] for name, array in samples.items()}
    answers = sorted({w.selection.answer for w in wanted})
    return Reference(
        _named(source.predict(samples, answers=answers), wanted),
        chosen,
        _named(source.predict(some, one_by_one=True, answers=answers), wanted),
        _named(source.predict(samples, answers=answers), wanted),
    )


def check_artifact(
    runner: Runnable,
    wire: Batch,
    reference: Reference,
    signature: Signature,
    tolerance: Tolerance,
    flips: Mapping[str, int] | None = None,
) -> Iterator[Check]:
    """Compare an artifact with the model on every sample row.

    Args:
        runner: The artifact, loaded.
        wire: Rows in the artifact's own types.
        reference: The model's answers.
        signature: The artifact's tensors.
        tolerance: Bounds by output.
        flips: Labels that may differ, by output (``budget: label_flips``).
    """
    yield _source_repeats(reference, tolerance)
    got = runner.run(wire)
    for spec in signature.outputs:
        bounds = tolerance.of(spec.name)
        outcome = compare(spec.name, got[spec.name], reference.batched[spec.name], bounds)
        yield _equal(spec.name, spec.dtype, outcome, bounds, (flips or {}).get(spec.name, 0))
    yield _repeats(got, runner.run(wire))
    if not signature.batched:
        yield Check("batch invariance", Skip("the model has no batch dimension"))
        return
    alone = [runner.run(take(wire, i, i + 1)) for i in reference.alone_rows]
    yield _batch_invariant(got, alone, reference.alone_rows, tolerance)


def spread(count: int, at_most: int) -> tuple[int, ...]:
    """At most ``at_most`` of ``count`` row numbers, first and last included, spread evenly."""
    if count <= at_most:
        return tuple(range(count))
    return tuple(sorted({round(i * (count - 1) / (at_most - 1)) for i in range(at_most)}))


def as_emitted(answer: Array) -> Array:
    """The answer as the graph gives it: at least two axes."""
    return as_rows(answer)


def _named(answers: Batch, wanted: Sequence[Wanted]) -> dict[str, Array]:
    return {w.name: as_rows(w.of(answers)) for w in wanted}


def _equal(name: str, dtype: DType, outcome: Comparison, bounds: Bounds, flips: int) -> Check:
    title = f"equal: {name}"
    if outcome.why:
        return Check(
            title, Fail(outcome.why), hint="the exporter gives this answer another form than the model"
        )
    if not outcome.total:
        return Check(title, Fail("the answer is empty, so nothing was compared"))
    good = outcome.total - outcome.wrong
    if bounds == EXACT or not dtype.is_float:
        detail = f"{good} of {outcome.total} agree"
        hint = "rows near a decision boundary flip in the graph's precision (float32 or float64)"
    else:
        detail = f"{good} of {outcome.total} values within atol {bounds.atol:g}, rtol {bounds.rtol:g}"
        hint = "state a tolerance for the output if the deviation is harmless"
    if outcome.holds:
        return Check(title, Pass(detail), outcome.worst)
    if outcome.wrong <= flips:
        return Check(title, Pass(f"{detail}; the budget allows {flips} label flips"), outcome.worst)
    return Check(title, Fail(f"{detail}; worst: {outcome.worst}"), outcome.worst, hint)


def _source_repeats(reference: Reference, tolerance: Tolerance) -> Check:
    title = REPEATS[0]
    unlike = _unlike(reference.again, reference.batched, tolerance.of)
    if unlike is not None:
        return Check(
            title,
            Fail(f"asked twice, the model answers differently: {unlike.worst or unlike.why}"),
            unlike.worst,
            "a model that draws random numbers when it predicts cannot be checked; fix its random state",
        )
    later = _unlike(reference.latest, reference.earliest, tolerance.of)
    if later is not None:
        return Check(
            title,
            Fail(f"after other requests, the model answers differently: {later.worst or later.why}"),
            later.worst,
            "a model that remembers earlier requests cannot be checked; keep its state in inputs and outputs",
        )
    return Check(title, Pass("two calls, equal answers"))


def _unlike(got: Batch, want: Batch, bounds: Callable[[str], Bounds]) -> Comparison | None:
    """The first comparison that does not hold."""
    outcomes = (compare(name, got[name], answer, bounds(name)) for name, answer in want.items())
    return next((outcome for outcome in outcomes if not outcome.holds), None)


def _repeats(first: Batch, second: Batch) -> Check:
    title = REPEATS[1]
    unlike = _unlike(second, first, lambda _: EXACT)
    if unlike is None:
        return Check(title, Pass("two runs, equal to the bit"))
    return Check(
        title,
        Fail(f"two runs differ: {unlike.worst or unlike.why}"),
        unlike.worst,
        "an operator of the graph is random; export the model in its inference mode",
    )


def _batch_invariant(
    batched: Batch, alone: list[Batch], chosen: tuple[int, ...], tolerance: Tolerance
) -> Check:
    import numpy as np

    title = "batch invariance"
    worst: Deviation | None = None
    for name, answer in batched.items():
        single = np.concatenate([a[name] for a in alone])
        outcome = compare(name, single, answer[list(chosen)], tolerance.of(name))
        if not outcome.holds:
            return Check(
                title,
                Fail(f"a row alone is answered differently: {outcome.worst or outcome.why}"),
                outcome.worst,
                "the answer to a row depends on the other rows; serve it with max_batch_size: 0",
            )
        if outcome.worst and (worst is None or outcome.worst.absolute > worst.absolute):
            worst = outcome.worst
    return Check(title, Pass(f"{len(chosen)} rows alone, equal to the batch within tolerance"), worst)


def _count(batch: Batch) -> int:
    return len(next(iter(batch.values())))
