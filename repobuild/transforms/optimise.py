"""Graph optimisation that is measured: each step is kept only for what it shows.

A step is kept if the graph is still valid and within the limits, answers all requests as the original does,
and has fewer nodes or fewer bytes (and not more than a little of the other). These measures are the same in
every run, so that two builds from the same inputs are byte-identical. Run time is measured and reported, and
decides only against a step: one that is slower by :data:`SLOWER` in each of :data:`REPEATS` measurements is
dropped. A step of that kind would have to sit exactly at the factor to be decided differently in another run.

Answers are equal, by default, if they differ by rounding alone: folding a BatchNormalization into a Conv, or
evaluating constants in another order, moves float32 results by some units of the last place. The default
bounds are 1e-5 of the value (84 times 2^-23, the distance of float32 values near 1) plus 1e-6 of the largest
value of the output, or 1e-6 if that is smaller. Integers, labels, booleans and text must be equal.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repobuild.compare import compare
from repobuild.errors import EnvironmentLacking, RepobuildError
from repobuild.recipe.types import Bounds, Tolerance
from repobuild.tensors import Array, Batch
from repobuild.transforms.checking import KNOWN_DOMAINS, beyond, check_types
from repobuild.transforms.files import opened, size_of
from repobuild.transforms.interface import Applied, Limits, Size
from repobuild.transforms.session import ask, open_graph
from repobuild.transforms.steps import STEPS, Skipped, clean
from repobuild.transforms.timing import Pace, pace
from repobuild.transforms.tools import tool
from repobuild.transforms.writing import Writer

SLOWER = 1.5
"""Factor in run time from which a step is dropped."""
REPEATS = 3
"""Measurements that must all show it."""
NOISE = 0.1
"""Milliseconds of difference that are never called slower."""
GROWTH = 1.02
"""Factor by which the file may grow for fewer nodes, and 256 bytes more."""
RUNTIME_ONLY = ("extended fusion",)
"""Steps whose result only ONNX Runtime loads."""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What one step did.

    Attributes:
        name: The step.
        kept: Whether its result was taken.
        why: Why, or why not.
        before: Size of the graph that it was given.
        after: Size of what it made; None if nothing came of it.
        pace: Run times before and after, in milliseconds; None if they were not measured.
    """

    name: str
    kept: bool
    why: str
    before: Size
    after: Size | None
    pace: Pace | None

    def __str__(self) -> str:
        done = "kept" if self.kept else "dropped"
        numbers = ""
        if self.after is not None:
            numbers = (
                f"; {self.before.nodes} to {self.after.nodes} nodes, "
                f"{self.before.bytes} to {self.after.bytes} bytes"
            )
        return f"{self.name}: {done}, {self.why}{numbers}"


@dataclass(frozen=True, slots=True)
class Optimised:
    """What the optimisation did.

    Attributes:
        applied: The outcome as a whole. It holds nothing that differs between two equal builds.
        steps: Each step, with the times that were measured.
    """

    applied: Applied
    steps: tuple[StepOutcome, ...]


def optimise(
    model: Path,
    requests: Sequence[Batch],
    to: Path,
    limits: Limits,
    *,
    bounds: Bounds | Tolerance | None = None,
    runtime_only: bool = False,
) -> Optimised:
    """Try the steps in turn, and write what is left when those that do not help are dropped.

    Args:
        model: ONNX file; external data lies beside it. It is not changed.
        requests: Whole feeds of the graph; their shapes may differ.
        to: ONNX file to write; external data goes into ``<to.name>.data``.
        limits: What the graph may need of a runtime.
        bounds: How far answers may move; by default rounding alone, see the module.
        runtime_only: Whether operators of ONNX Runtime's own are allowed.

    Raises:
        ConversionFailed: The graph itself does not load or run.
        InputInvalid: Its external data cannot be read.
        EnvironmentLacking: ONNX Runtime is missing, or the disk refuses.
    """
    reference = _open(model)
    before = size_of(model)
    outcomes: list[StepOutcome] = []
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=".optimise-") as scratch:
        current = Path(scratch) / "origin" / "origin.onnx"  # written as the candidates are, to be comparable
        current.parent.mkdir()
        _rewrite(model, current)
        for number, name in enumerate(STEPS):
            if name in RUNTIME_ONLY and not runtime_only:
                continue
            folder = Path(scratch) / str(number)
            folder.mkdir()
            candidate = folder / "candidate.onnx"
            outcome = _try(name, current, candidate, reference, requests, limits, bounds)
            outcomes.append(outcome)
            if outcome.kept:
                shutil.rmtree(current.parent)
                current = candidate
            else:
                shutil.rmtree(folder)
        _rewrite(current, to)
    kept = [outcome.name for outcome in outcomes if outcome.kept]
    tools = [tool("onnx"), tool("onnxruntime")]
    if any(o.name == "onnxslim" and o.after is not None for o in outcomes):
        tools.append(tool("onnxslim"))
    applied = Applied(
        f"kept: {', '.join(kept)}" if kept else "no step made the graph smaller",
        tuple(str(outcome) for outcome in outcomes),
        tuple(tools),
        before,
        size_of(to),
    )
    return Optimised(applied, tuple(outcomes))


def _rewrite(path: Path, to: Path) -> None:
    with opened(path) as source, Writer(source, to) as writer:
        writer.finish(source.proto)


def _open(path: Path) -> Any:
    with opened(path) as source:
        return open_graph(source.proto, source, optimised=True)


def _try(
    name: str,
    current: Path,
    candidate: Path,
    reference: Any,
    requests: Sequence[Batch],
    limits: Limits,
    bounds: Bounds | Tolerance | None,
) -> StepOutcome:
    before = size_of(current)
    try:
        made = STEPS[name](current, candidate.parent)
        clean(made, current, candidate)
        check_types(candidate)
        after = size_of(candidate)
        why = _unfit(current, candidate, limits, allowed=name in RUNTIME_ONLY) or _no_gain(before, after)
        if why:
            return StepOutcome(name, False, why, before, after, None)
        session = _open(candidate)
        why = _differs(reference, session, requests, bounds)
        if why:
            return StepOutcome(name, False, why, before, after, None)
    except Skipped as problem:
        return StepOutcome(name, False, f"not tried: {problem}", before, None, None)
    except EnvironmentLacking:
        raise
    except RepobuildError as problem:
        first = f": {problem.evidence[0].text}" if problem.evidence else ""
        return StepOutcome(name, False, f"{problem.message}{first}", before, None, None)
    except Exception as problem:  # noqa: BLE001 - a tool that fails in its own way costs its step alone
        words = (str(problem).strip().splitlines() or [""])[0][:300].replace(f"{current.parent}/", "")
        return StepOutcome(name, False, f"it fails: {type(problem).__name__}: {words}", before, None, None)
    speed, slow = _slower(_open(current), session, requests)
    if slow:
        return StepOutcome(name, False, f"slower by more than a factor of {SLOWER:g}", before, after, speed)
    return StepOutcome(name, True, "all answers equal", before, after, speed)


def _unfit(current: Path, candidate: Path, limits: Limits, *, allowed: bool) -> str:
    """What of a graph the runtimes that it is made for would not load."""
    with opened(current) as was, opened(candidate) as now:
        wrong = beyond(now.proto, limits)
        old = {entry.domain for entry in was.proto.opset_import}
        fresh = [
            e.domain for e in now.proto.opset_import if e.domain not in old and e.domain not in KNOWN_DOMAINS
        ]
    if fresh and not allowed:
        wrong.append(f"operators of {', '.join(fresh)}")
    return f"it needs {'; '.join(wrong)}" if wrong else ""


def _no_gain(before: Size, after: Size) -> str:
    if after.nodes >= before.nodes and after.bytes >= before.bytes:
        return "neither fewer nodes nor fewer bytes"
    if after.nodes > before.nodes:
        return "more nodes"
    if after.bytes > before.bytes * GROWTH + 256:
        return "fewer nodes, but a larger file"
    if after.nodes == before.nodes and after.bytes > 0.99 * before.bytes:
        return "as many nodes, and less than 1 % fewer bytes"
    return ""


def _differs(
    reference: Any, session: Any, requests: Sequence[Batch], bounds: Bounds | Tolerance | None
) -> str:
    """How the answers differ from those of the original graph; empty if they do not."""
    import numpy as np

    names = [output.name for output in reference.get_outputs()]
    for number, request in enumerate(requests):
        answers = zip(names, ask(reference, request, names), ask(session, request, names), strict=True)
        for name, want, got in answers:
            if not isinstance(want, np.ndarray) or not isinstance(got, np.ndarray):
                return f"output '{name}' is no tensor, so that it cannot be compared"
            if got.dtype != want.dtype:
                return f"output '{name}' is {got.dtype}, it was {want.dtype}"
            outcome = compare(name, np.atleast_1d(got), np.atleast_1d(want), _bounds(name, want, bounds))
            if not outcome.holds:
                return f"request {number} is answered differently: {outcome.why or outcome.worst}"
    return ""


def _bounds(name: str, want: Array, bounds: Bounds | Tolerance | None) -> Bounds:
    import numpy as np

    if isinstance(bounds, Tolerance):
        return bounds.of(name)
    if bounds is not None:
        return bounds
    if want.dtype.kind != "f":
        return Bounds(0.0, 0.0)
    finite = np.abs(want[np.isfinite(want)]).astype(np.float64)
    return Bounds(1e-6 * min(1.0, float(finite.max(initial=0.0))), 1e-5)


def _slower(before: Any, after: Any, requests: Sequence[Batch]) -> tuple[Pace, bool]:
    """The first measurement, and whether all of several show that the step is clearly slower."""
    first = speed = pace(before, after, requests)
    for _ in range(REPEATS - 1):
        if speed.after <= SLOWER * speed.before or speed.after - speed.before <= NOISE:
            return first, False
        speed = pace(before, after, requests)
    return first, speed.after > SLOWER * speed.before and speed.after - speed.before > NOISE
