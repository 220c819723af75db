"""Implicit state of sequences (Triton's sequence_batch_scheduler.cc, ``GenerateInitialStateData``)."""

from __future__ import annotations

import math
from typing import Any

from repobuild.lint.finding import Findings
from repobuild.lint.model import Model, View, enum_name
from repobuild.lint.warmup import SIZES


def check_states(model: Model, view: View, findings: Findings) -> None:
    """Check every ``state`` of sequence batching, and what it begins with."""
    batcher, backend = view.config.sequence_batching, view.effective.backend
    if batcher.state and backend == "python":
        findings.add(
            "state-backend",
            "the python backend has no implicit state",
            *view.where("sequence_batching", 0, "state", 0),
        )
    for index, state in enumerate(batcher.state):
        at: tuple[str | int, ...] = ("sequence_batching", 0, "state", index)
        if len(state.initial_state) > 1:
            findings.add(
                "state-initial-unfit",
                f"state '{state.input_name}' has {len(state.initial_state)} initial states",
                *view.where(*at, "initial_state", 1),
            )
        for number, initial in enumerate(state.initial_state):
            _check_initial(model, view, findings, state, initial, (*at, "initial_state", number))


def _check_initial(
    model: Model, view: View, findings: Findings, state: Any, initial: Any, at: tuple[str | int, ...]
) -> None:
    called = f"the initial state of '{state.input_name}'"
    for lacking, given in (
        ("name", initial.name),
        ("zero_data or data_file", initial.WhichOneof("state_data")),
    ):
        if not given:
            findings.add("state-initial-incomplete", f"{called} has no {lacking}", *view.where(*at))
    has, wants = enum_name(initial, "data_type"), enum_name(state, "data_type")
    if has != wants:
        findings.add(
            "state-initial-unfit", f"{called} is {has}, the state {wants}", *view.where(*at, "data_type")
        )
    fits = len(initial.dims) == len(state.dims) and all(
        h != -1 and w in (-1, h) for h, w in zip(initial.dims, state.dims, strict=True)
    )
    if not fits:
        findings.add(
            "state-initial-unfit",
            f"{called} has dims {list(initial.dims)}, the state {list(state.dims)}",
            *view.where(*at, "dims"),
        )
    _check_file(model, view, findings, initial, at, sized=fits and has == wants)


def _check_file(
    model: Model, view: View, findings: Findings, initial: Any, at: tuple[str | int, ...], *, sized: bool
) -> None:
    name = initial.data_file
    if not name:
        return
    found = model.at("initial_state", *name.split("/"))
    place = view.where(*at, "data_file")
    if found is None or not found.is_file:
        findings.add("state-file-missing", f"initial_state/{name} is not there", *place)
        return
    needed = math.prod(initial.dims) * SIZES.get(enum_name(initial, "data_type"), 0)
    if sized and found.size < needed:
        findings.add("state-file-short", f"initial_state/{name} has {found.size} bytes of {needed}", *place)
