"""Edge rows through the model and through a graph, each row alone, since either may refuse it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from repobuild.checks import as_emitted
from repobuild.compare import compare
from repobuild.errors import RepobuildError
from repobuild.outputs import Wanted
from repobuild.recipe.types import Tolerance
from repobuild.report import Check, Deviation, Fail, Pass, Skip
from repobuild.runners.interface import Runnable
from repobuild.samples.edges import BESIDE, THRESHOLD, EdgeRows
from repobuild.samples.texts import FORMS
from repobuild.sources.interface import RowsSource
from repobuild.tensors import Array, Batch, take

JUMP = "jump"
"""Kind of the requests on a jump of the model's answer, where a hair more gives it another one."""
JUMPS = (THRESHOLD, JUMP)
SIZE = "size"
"""Kind of the requests that hold values of the samples in another number."""

Told = tuple[tuple[str, str], str]
"""What an edge row tries (its kind and column), and what came of it."""


@dataclass(frozen=True, slots=True)
class EdgeReference:
    """What the model itself says to the edge rows.

    Attributes:
        about: For each row, or request, what it tries: its kind and the column.
        answers: For each the outputs, or the model's error.
        sizes: The largest magnitude among the answers to the samples, of the outputs whose tolerance grows in
            proportion where values lie beyond the samples.
    """

    about: tuple[tuple[str, str], ...]
    answers: tuple[Mapping[str, Array] | str, ...]
    sizes: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def tolerances(self, tolerance: Tolerance) -> Iterator[Tolerance]:
        """What holds for each row or request, where ``tolerance`` holds for the samples."""
        beyond = tolerance.beyond(self.sizes)
        return (tolerance if kind == SIZE else beyond for kind, _ in self.about)


@dataclass(frozen=True, slots=True)
class EdgeOutcome:
    """How a graph did on the edge rows.

    Attributes:
        equal: Rows with equal answers.
        both_refuse: Rows that both refuse: what the row tries, and the model's error.
        wrong: Rows where the graph answers otherwise or fails: what the row tries, and how it went.
        lenient: Rows that the model refuses and the graph answers: what the row tries, and the model's error.
        reworded: Made-up forms of a text (:data:`repobuild.samples.texts.FORMS`) that the graph answers
            otherwise: what the row tries, and how it went.
        worst: The largest deviation of the first row of ``wrong``.
    """

    equal: int
    both_refuse: tuple[Told, ...]
    wrong: tuple[Told, ...]
    lenient: tuple[Told, ...]
    reworded: tuple[Told, ...] = ()
    worst: Deviation | None = None

    @property
    def off(self) -> int:
        """Rows that are wrong, other than those at or a hair from a jump of the model's answer."""
        return sum(about[0] not in JUMPS for about, _ in self.wrong)

    @property
    def first_off(self) -> Told:
        """The first row of :attr:`off`, which must not be zero."""
        return next(told for told in self.wrong if told[0][0] not in JUMPS)

    @property
    def flipped(self) -> int:
        """Rows a hair from a threshold that land on its other side."""
        return sum(about[0] == THRESHOLD for about, _ in self.wrong)

    @property
    def jumped(self) -> tuple[str, ...]:
        """How requests went that lie on a jump of the model's answer."""
        return tuple(how for about, how in self.wrong if about[0] == JUMP)


def ask_edges(source: RowsSource, rows: EdgeRows, wanted: Sequence[Wanted]) -> EdgeReference:
    """The model's own words on every edge row."""
    if not rows.about:
        return EdgeReference((), ())
    answered, errors = source.predict_each(rows.given, sorted({w.selection.answer for w in wanted}))
    found: list[Mapping[str, Array] | str] = []
    at = 0
    for error in errors:
        if error is not None:
            found.append(error)
            continue
        one = take(answered, at, at + 1)
        found.append({w.name: as_emitted(w.of(one)) for w in wanted})
        at += 1
    return EdgeReference(rows.about, tuple(found))


def run_edges(
    runner: Runnable, requests: Sequence[Batch], reference: EdgeReference, tolerance: Tolerance
) -> EdgeOutcome:
    """Put every edge row through a graph and compare.

    Args:
        runner: The graph, loaded.
        requests: The rows, or requests of any size, in the graph's own types.
        reference: The model's words on them.
        tolerance: Bounds by output that hold for the samples.
    """
    equal = 0
    wrong: list[Told] = []
    lenient: list[Told] = []
    both: list[Told] = []
    reworded: list[Told] = []
    worst: Deviation | None = None
    bounds = reference.tolerances(tolerance)
    asked = zip(reference.about, reference.answers, requests, bounds, strict=True)
    for index, (about, want, request, within) in enumerate(asked):
        try:
            got: Batch | str = runner.run(request)
        except RepobuildError as problem:
            got = "; ".join(e.text for e in problem.evidence) or problem.message
        if isinstance(want, str):
            (both if isinstance(got, str) else lenient).append((about, want))
            continue
        told = reworded if about[0] in FORMS else wrong
        if isinstance(got, str):
            told.append((about, f"the model answers, the graph fails: {got}"))
            continue
        off = list(_differences(index, got, want, within))
        if off:
            told.append((about, str(off[0][1])))
            worst = worst or (None if told is reworded else off[0][0])
        else:
            equal += 1
    return EdgeOutcome(equal, tuple(both), tuple(wrong), tuple(lenient), tuple(reworded), worst)


def edge_check(outcome: EdgeOutcome) -> Check:
    """The check to report."""
    title = "edge rows"
    told = (outcome.both_refuse, outcome.wrong, outcome.lenient, outcome.reworded)
    total = outcome.equal + sum(map(len, told))
    if not total:
        return Check(title, Skip("no edge rows can be made from these samples"))
    if outcome.off:
        about, how = outcome.first_off
        return Check(
            title,
            Fail(f"{outcome.off} of {total} differ; {_named(about)}: {how}"),
            outcome.worst,
            "these rows were made from the samples; the converter treats such values otherwise",
        )
    parts = [f"{outcome.equal} of {total} equal"]
    if outcome.both_refuse:
        parts.append(f"{len(outcome.both_refuse)} refused by both")
    if outcome.lenient:
        kinds = dict.fromkeys(_KINDS.get(about[0], about[0]) for about, _ in outcome.lenient)
        parts.append(f"{len(outcome.lenient)} refused by the model alone ({', '.join(kinds)})")
    if outcome.reworded:
        parts.append(f"{len(outcome.reworded)} forms of a text answered otherwise (see the notes)")
    if outcome.jumped:
        parts.append(f"{len(outcome.jumped)} on a jump of the model's answer (see the notes)")
    if outcome.flipped:
        parts.append(f"{outcome.flipped} within 1e-9 of a threshold on its other side")
    return Check(title, Pass(", ".join(parts)))


def edge_notes(outcome: EdgeOutcome) -> Iterator[str]:
    """What a user of the served model must know: where it answers and the model would not, or fails a batch.

    That most models refuse missing numbers is left to the check's own line.
    """
    for rows, error in _by_kind(outcome.lenient):
        yield (
            f"{rows}: the model refuses them ({error}), the served model answers them; check such values"
            " before they are sent"
        )
    for rows, error in _by_kind(outcome.both_refuse):
        yield (
            f"{rows}: the model refuses them ({error}), and so does the served model: one such row fails"
            " every request that it is batched with; check such values before they are sent"
        )
    for (form, column), how in outcome.reworded:
        yield (
            f"texts with {form} in {column} are answered otherwise than by the model ({how}); bring texts"
            " into the form of the samples before they are sent"
        )
    for how in outcome.jumped:
        yield (
            "where all values are zero the model's answer jumps (ties in an order, a sign), and the served"
            f" model falls to another side: {how}"
        )
    if outcome.flipped:
        yield (
            f"{outcome.flipped} rows within 1e-9 (relative) of a threshold are answered from its other side:"
            " numbers that close are not told apart in the graph's precision"
        )


def _by_kind(refused: Iterable[Told]) -> Iterator[tuple[str, str]]:
    """Each kind of row with its columns in words, and the first error that it met."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for (kind, column), error in refused:
        if kind == "missing" and "NaN" in error:
            continue
        kinds.setdefault(_UNFAMILIAR.get(kind, kind), []).append((column, error))
    for kind, found in kinds.items():
        columns = list(dict.fromkeys(c for c, _ in found if c))
        where = f" in {', '.join(columns[:8])}{' and more' if len(columns) > 8 else ''}" if columns else ""
        yield f"rows with {_KINDS.get(kind, kind)}{where}", found[0][1]


_KINDS = {
    "missing": "missing values",
    "unseen category": "an unseen category (handle_unknown)",
    "empty text": "empty text",
    "extreme": "extreme values",
    "beyond": "values beyond those of the samples",
    "negated": "a sample with its signs turned",
    "zeros": "nothing but zeros",
    BESIDE: "a number a step (1e-4) beside a jump of the model's answer",
}


_UNFAMILIAR = {"negated": "beyond", "zeros": "beyond"}
"""Kinds of rows that a model refuses for one reason: numbers that it does not know."""


def _named(about: tuple[str, str]) -> str:
    kind, column = about
    return f"{_KINDS.get(kind, kind)} in {column}" if column else _KINDS.get(kind, kind)


def _differences(
    index: int, got: Batch, want: Mapping[str, Array], tolerance: Tolerance
) -> Iterator[tuple[Deviation | None, str]]:
    for name, answer in want.items():
        outcome = compare(name, got[name], answer, tolerance.of(name))
        if not outcome.holds:
            worst = outcome.worst
            shown = f"output '{name}' is {worst.got}, the model says {worst.want}" if worst else outcome.why
            yield worst, f"edge row {index}: {shown}"
