"""Between export and compiling: the graph optimised as far as that helps, and in the precision asked for.

Both happen in a child process, since ONNX Runtime may crash on graphs that it has not met before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from repobuild.compare import compare
from repobuild.errors import ConversionFailed, EnvironmentLacking, InputInvalid, RepobuildError, first_words
from repobuild.export import Graph
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Bounds, Recipe, Tolerance
from repobuild.releases import Release
from repobuild.report import Check, Fail, Pass
from repobuild.tensors import Batch
from repobuild.transforms.interface import Applied
from repobuild.transforms.run import OPTIMISE, applied_from
from repobuild.worker.arrays import writing
from repobuild.worker.host import Worker
from repobuild.worker.many import load_many, save_many

REQUESTS = "requests.npz"
ANSWERS = "answers.npz"
MADE = "model.onnx"
MOST_ROWS = 64
"""Rows of the samples on which optimised graphs are compared, and quantised ones calibrated."""

FULL = "fp32"
LEFT_ALONE = (
    "the graph was not optimised, since its weights are large and trying holds several copies of them;"
    " export: {optimise: true} tries all the same"
)
FOREIGN = "the graph was not optimised, since operators of libraries are run as they are given"
KEPT_BOUNDS: Mapping[str, Bounds] = MappingProxyType(
    {"fp16": Bounds(1e-2, 1e-2, scaled=True), "bf16": Bounds(5e-2, 5e-2, scaled=True)}
)
"""What is allowed where the recipe states no tolerance: some ten roundings of 2^-11 and of 2^-8."""
SANE = Bounds(0.5, 0.5, scaled=True)
"""What is allowed of an int8 graph that a budget of accuracy decides on."""


@dataclass(frozen=True, slots=True)
class Refined:
    """What became of a graph.

    Attributes:
        graph: The graph, to be compiled.
        before: The graph as it was, for bisection.
        rounds: Whether it computes in a precision that the CPU only seems to have.
        facts: JSON-ready facts for the report.
        applied: What was done, for its tools.
    """

    graph: Graph
    before: Graph
    rounds: bool
    facts: dict[str, Any]
    applied: tuple[Applied, ...]


def precision_of(recipe: Recipe) -> str:
    """The precision that the recipe's target asks for."""
    return str(recipe.targets[0].options.get("precision", FULL))


def refine(graph: Graph, recipe: Recipe, release: Release, folder: Path, *, optimised: bool) -> Refined:
    """Optimise a graph and bring it into the precision that the target asks for.

    Args:
        graph: The graph in normal form.
        recipe: Its targets, tolerance and budget.
        release: The Triton release that it must load on.
        folder: Existing folder to work in.
        optimised: Whether to try optimisations where the recipe does not say; graphs with external data are
            then left alone, since trying holds several of them in memory.

    Raises:
        InputInvalid: The recipe quantises and states nothing that decides whether answers are good enough.
        ConversionFailed: The graph cannot be transformed.
    """
    precision = precision_of(recipe)
    stated = recipe.export.get("optimise")
    large = graph.path.with_name(f"{graph.path.name}.data").exists()
    left_alone = optimised and large and stated is None
    wants = bool(optimised and not large) if stated is None else bool(stated)
    if wants and graph.libraries:
        wants, graph = False, replace(graph, notes=(*graph.notes, FOREIGN))
    tolerance = _tolerance(recipe, graph, precision)
    if left_alone:
        graph = replace(graph, notes=(*graph.notes, LEFT_ALONE))
    if precision == FULL and not wants:
        return Refined(graph, graph, False, {}, ())
    home = folder / "refine"
    home.mkdir(exist_ok=True)
    limits = {"opset": release.opset, "ml_opset": release.ml_opset, "ir": release.ir}
    done: list[Applied] = []
    facts: dict[str, Any] = {}
    path, notes = graph.path, list(graph.notes)
    requests = [_few(graph.wire, graph.signature.batched), *(wire for wire, _ in graph.further)]
    if wants:
        try:
            path, answer = _transform(OPTIMISE, path, requests, home / OPTIMISE, limits)
        except ConversionFailed as problem:
            notes.append(f"the graph was left as it is, since optimising it failed ({first_words(problem)})")
        else:
            done.append(applied_from(answer["applied"]))
            facts["optimisation"] = list(answer["steps"])
    before = replace(graph, path=path)
    if precision != FULL:
        calibrated = precision.startswith("int8")
        feeds = requests if calibrated else [*requests, *graph.edge_requests]
        path, answer = _transform(precision, path, feeds, home / precision, limits)
        applied = applied_from(answer["applied"])
        done.append(applied)
        facts["transform"] = {"precision": precision, "detail": applied.detail, "notes": [*applied.notes]}
        notes.extend((f"{precision}: {applied.detail}", *applied.notes))
        if calibrated:
            graph = _inside(graph)
            notes.append("values beyond those of the samples were not compared: int8 does not hold them")
    made = replace(graph, path=path, notes=tuple(notes), tolerance=tolerance)
    return Refined(made, before, precision == "fp16", facts, tuple(done))


def real_float16(refined: Refined, folder: Path) -> Check:
    """Compare a float16 graph as it computes where float16 is real, since the CPU computes it in float32.

    Args:
        refined: The graph in float16.
        folder: Existing folder to work in.
    """
    title = "equal in real float16"
    graph = refined.graph
    asked = [(graph.wire, graph.reference.batched, graph.tolerance)]
    bounds = graph.edges.tolerances(graph.tolerance)
    edges = zip(graph.edge_requests, graph.edges.answers, bounds, strict=True)
    asked.extend((wire, want, within) for wire, want, within in edges if not isinstance(want, str))
    answers = rounded_answers(graph.path, [wire for wire, _, _ in asked], folder)
    worst = None
    for (_, want, tolerance), got in zip(asked, answers, strict=True):
        for name, answer in want.items():
            outcome = compare(name, got[name], answer, tolerance.of(name))
            if not outcome.holds:
                hint = "take bf16 or fp32, or state a tolerance if the deviation is harmless"
                return Check(title, Fail(f"worst: {outcome.worst or outcome.why}"), outcome.worst, hint)
            if outcome.worst and (worst is None or outcome.worst.absolute > worst.absolute):
                worst = outcome.worst
    return Check(title, Pass(f"{len(asked)} requests, every float16 value rounded as a GPU rounds it"), worst)


def rounded_answers(model: Path, requests: Sequence[Batch], folder: Path) -> list[Batch]:
    """What a float16 graph answers where float16 is real.

    Raises:
        ConversionFailed: ONNX Runtime refuses the graph, or crashes on it.
    """
    folder.mkdir(exist_ok=True)
    with closing(Worker(folder, "running the graph in float16")) as worker:
        question = folder / REQUESTS
        with writing("the requests for the graph"):
            save_many(question, requests)
        to = worker.place / ANSWERS
        _call(worker, "fp16", "rounded", model=str(model), requests=str(question), to=str(to))
        found = load_many(worker.take(ANSWERS, folder / ANSWERS))
        return [answer for answer in found if answer is not None]


def departure(refined: Refined, artifact: Path, folder: Path) -> str:
    """The first node where an artifact leaves the graph that it was made from, in words.

    Args:
        refined: The graph, and the graph before it was brought into another precision.
        artifact: The artifact.
        folder: Existing folder to work in.
    """
    graph = refined.graph
    if graph.libraries:
        return (
            "the artifact is the graph itself, and its operators come from libraries, which are not bisected"
        )
    folder.mkdir(exist_ok=True)
    bounds = graph.tolerance.default
    with closing(Worker(folder, "bisecting the graph")) as worker:
        question = folder / REQUESTS
        with writing("the requests for the graphs"):
            save_many(question, [graph.wire, *graph.edge_requests])
        answer = _call(
            worker,
            "bisect",
            "bisect",
            reference=str(refined.before.path),
            artifact=str(artifact),
            requests=str(question),
            bounds=[bounds.atol, bounds.rtol, bounds.scaled],
        )
    found: str = answer["departure"]
    return found or (
        "every node of the artifact agrees with the exported graph, so the difference was there before: the"
        " exporter's graph itself answers otherwise than the model"
    )


def _transform(
    kind: str, model: Path, requests: Sequence[Batch], folder: Path, limits: Mapping[str, int]
) -> tuple[Path, dict[str, Any]]:
    """One transform in a child of its own; the graph that came out, in a folder of its own."""
    folder.mkdir(exist_ok=True)
    question = folder / REQUESTS
    with writing("the requests for the transform"):
        save_many(question, requests)
    with closing(Worker(folder, "transforming the graph")) as worker:
        answer = _call(
            worker,
            kind,
            "transform",
            kind=kind,
            model=str(model),
            requests=str(question),
            to=str(worker.place / MADE),
            limits=dict(limits),
        )
        path = worker.take(MADE, folder / MADE)
        data = f"{MADE}.data"
        if (worker.place / data).exists():
            worker.take(data, folder / data)
        return path, answer


def _call(worker: Worker, what: str, task: str, **parameters: Any) -> dict[str, Any]:
    try:
        return worker.call("task", name=task, **parameters)
    except EnvironmentLacking as problem:
        raise _crashed(problem, what) from problem


def _crashed(problem: EnvironmentLacking, kind: str) -> RepobuildError:
    if problem.code != "worker-crashed":
        return problem
    what = "the optimised graph" if kind == OPTIMISE else f"the graph in {kind}"
    hint = (
        "write export: {optimise: false}"
        if kind == OPTIMISE
        else "choose another precision; a server with this ONNX Runtime would crash as well"
    )
    return ConversionFailed("runtime-crashes", f"ONNX Runtime crashes on {what}", problem.evidence, hint)


def _few(wire: Batch, batched: bool) -> Batch:
    return {name: array[:MOST_ROWS] if batched else array for name, array in wire.items()}


def _inside(graph: Graph) -> Graph:
    """The graph without edge requests whose values lie beyond the samples."""
    kept = [i for i, about in enumerate(graph.edges.about) if about[0] == "size"]
    edges = replace(
        graph.edges,
        about=tuple(graph.edges.about[i] for i in kept),
        answers=tuple(graph.edges.answers[i] for i in kept),
    )
    return replace(graph, edges=edges, edge_requests=tuple(graph.edge_requests[i] for i in kept))


def _tolerance(recipe: Recipe, graph: Graph, precision: str) -> Tolerance:
    """What the recipe states, or what the precision allows.

    Raises:
        InputInvalid: ``precision-unstated``: int8 changes answers, and the recipe does not say by how much.
    """
    if precision == FULL or recipe.tolerance.stated:
        return graph.tolerance
    named = recipe.tolerance.by_output.keys() >= {w.name for w in graph.wanted}
    if precision in KEPT_BOUNDS:
        return replace(graph.tolerance, default=KEPT_BOUNDS[precision])
    if named:
        return graph.tolerance
    if recipe.budget.accuracy_drop is not None:
        return replace(graph.tolerance, default=SANE)
    raise InputInvalid(
        "precision-unstated",
        f"{precision} changes the answers, and the recipe does not say by how much they may change",
        (recipe_evidence(recipe, ("targets", 0), f"precision: {precision}"),),
        "state a tolerance, or labels: and budget: {accuracy_drop: 0.01}",
    )
