"""Runs a transform by its name, in the child process; what it did comes back as plain values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from repobuild.artifact import Tool
from repobuild.recipe.types import Bounds
from repobuild.transforms.bfloat16 import BFloat16
from repobuild.transforms.bisect import first_departure
from repobuild.transforms.half import Half
from repobuild.transforms.int8 import Int8
from repobuild.transforms.interface import Applied, Limits, Size, Transform
from repobuild.transforms.optimise import optimise
from repobuild.transforms.rounding import RoundedRunner
from repobuild.worker.many import load_many, save_many
from repobuild.worker.onnx_session import open_session

OPTIMISE = "optimise"
TRANSFORMS: Mapping[str, Callable[[], Transform]] = {
    "fp16": Half,
    "bf16": BFloat16,
    "int8": lambda: Int8("static"),
    "int8-static": lambda: Int8("static"),
    "int8-dynamic": lambda: Int8("dynamic"),
}
"""Transforms by the name of the precision in a recipe."""


def run(
    kind: str, model: str, requests: str, to: str, limits: dict[str, int], runtime_only: bool = False
) -> dict[str, Any]:
    """Transform a graph, and load what came out as a server does.

    Args:
        kind: A key of :data:`TRANSFORMS`, or :data:`OPTIMISE`.
        model: ONNX file.
        requests: Feeds, as :func:`repobuild.worker.many.save_many` writes them.
        to: ONNX file to write.
        limits: Fields of :class:`~repobuild.transforms.interface.Limits`.
        runtime_only: Whether optimisation may use operators of ONNX Runtime's own.

    Returns:
        What :func:`applied_from` reads, and ``steps`` in words.

    Raises:
        RepobuildError: What the transform raises.
    """
    feeds = [request for request in load_many(Path(requests)) if request is not None]
    target = Path(to)
    steps: list[str] = []
    paces: list[list[float] | None] = []
    if kind == OPTIMISE:
        done = optimise(Path(model), feeds, target, Limits(**limits), runtime_only=runtime_only)
        applied = done.applied
        steps = [str(step) for step in done.steps]
        paces = [None if s.pace is None else list(dataclasses.astuple(s.pace)) for s in done.steps]
    else:
        applied = TRANSFORMS[kind]().apply(Path(model), feeds, target)
    open_session(target)
    return {"applied": dataclasses.asdict(applied), "steps": steps, "paces": paces}


def load(model: str, libraries: list[str]) -> dict[str, Any]:
    """Load a graph, with libraries of custom operators, as a server does.

    Raises:
        InputInvalid: A library cannot be used.
        ConversionFailed: ONNX Runtime refuses it.
    """
    open_session(Path(model), libraries)
    return {}


def rounded(model: str, requests: str, to: str) -> dict[str, Any]:
    """Answer requests as a float16 graph does where float16 is real; the answers go to ``to``."""
    runner = RoundedRunner(Path(model))
    feeds = [request for request in load_many(Path(requests)) if request is not None]
    save_many(Path(to), [runner.run(feed) for feed in feeds])
    return {}


def bisect(reference: str, artifact: str, requests: str, bounds: list[Any]) -> dict[str, Any]:
    """Where an artifact leaves its reference, in words; empty if nowhere."""
    feeds = [request for request in load_many(Path(requests)) if request is not None]
    found = first_departure(Path(reference), Path(artifact), feeds, Bounds(*bounds))
    return {"departure": "" if found is None else str(found)}


def applied_from(data: Mapping[str, Any]) -> Applied:
    """Read what :func:`run` gave."""
    return Applied(
        data["detail"],
        tuple(data["notes"]),
        tuple(Tool(**t) for t in data["tools"]),
        Size(**data["before"]),
        Size(**data["after"]),
    )
