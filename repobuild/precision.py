"""FP32 or FP64, decided by measurement: the first precision whose graph answers as the model does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from repobuild.edge_check import EdgeOutcome
from repobuild.errors import RepobuildError
from repobuild.feeds import Feed
from repobuild.samples.fit import DoesNotFit
from repobuild.tensors import DType, Signature

LADDER = (DType.FP32, DType.FP64)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A graph in one precision, measured.

    Attributes:
        floats: The precision.
        proto: The graph, an ``onnx.ModelProto``.
        signature: Its tensors.
        wrong: Values on the samples that differ from the model's.
        why: The worst of them in words; empty when none differs.
        edges: How it did on the edge rows.
        notes: What was decided for the user.
    """

    floats: DType
    proto: Any
    signature: Signature
    wrong: int
    why: str
    edges: EdgeOutcome
    notes: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether it answers as the model does, everywhere that was looked at."""
        return not (self.wrong or self.edges.wrong)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One precision that was tried, for the report.

    Attributes:
        floats: The precision.
        holds: Whether it answers as the model does.
        detail: How it went.
    """

    floats: DType
    holds: bool
    detail: str

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {"precision": self.floats.value, "holds": self.holds, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class Choice:
    """The precision that was taken, and what was tried for it."""

    candidate: Candidate
    attempts: tuple[Attempt, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Why it is not the default, if it is not."""
        taken = self.candidate.floats
        if len(self.attempts) < 2:
            return ()
        tried = "; ".join(f"{_SPOKEN[a.floats]}: {a.detail}" for a in self.attempts)
        if taken is DType.FP64:
            return (f"the inputs are FP64, since float32 loses precision that the answers need ({tried})",)
        return (f"neither float32 nor float64 reproduces every answer ({tried})",)


def choose_precision(feed: Feed, make: Callable[[DType], Candidate]) -> Choice:
    """Try the precisions in turn.

    The first that holds on all samples and edge rows is taken; else the first that holds but for rows a hair
    from a threshold; else the one with the fewest differences, which the checks then refuse.

    Args:
        feed: How the model is fed; without an open type there is one attempt.
        make: Builds and measures the graph in one precision.

    Raises:
        RepobuildError: No precision gives a graph; the error is that of the first.
    """
    made: list[Candidate] = []
    attempts: list[Attempt] = []
    problems: list[RepobuildError] = []
    for floats in LADDER if feed.open else LADDER[:1]:
        try:
            candidate = make(floats)
        except DoesNotFit as problem:
            problems.append(problem.problem)
        except RepobuildError as problem:
            problems.append(problem)
        else:
            made.append(candidate)
            attempts.append(Attempt(floats, candidate.holds, describe(candidate)))
            if candidate.holds:
                break
            continue
        attempts.append(Attempt(floats, holds=False, detail=_words(problems[-1])))
    if not made:
        raise problems[0]
    return Choice(_best(made), tuple(attempts))


def describe(candidate: Candidate) -> str:
    """How a precision did, in one line."""
    parts = []
    if candidate.wrong:
        parts.append(f"{candidate.wrong} values differ on the samples, {candidate.why}")
    if candidate.edges.off:
        about, how = candidate.edges.first_off
        parts.append(f"{candidate.edges.off} edge rows differ, {' '.join(filter(None, about))}: {how}")
    if candidate.edges.flipped:
        parts.append(f"{candidate.edges.flipped} rows close to a threshold are answered from its other side")
    return "; ".join(parts) or "all answers equal"


_SPOKEN = {DType.FP32: "float32", DType.FP64: "float64"}


def _best(made: Sequence[Candidate]) -> Candidate:
    def rank(candidate: Candidate) -> tuple[int, int, int]:
        return candidate.wrong, candidate.edges.off, candidate.edges.flipped

    return min(made, key=rank)


def _words(problem: RepobuildError) -> str:
    first = f": {problem.evidence[0].text}" if problem.evidence else ""
    return f"no graph, {problem.message}{first}"
