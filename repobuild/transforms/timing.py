"""How long two sessions take for the same requests, measured in turn so that both see the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from repobuild.tensors import Batch
from repobuild.transforms.session import feed

BUDGET = 0.5
"""Seconds that one measurement may take, unless three runs of each session take longer."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Median milliseconds for all requests, one after another."""

    before: float
    after: float


def pace(before: Any, after: Any, requests: Sequence[Batch]) -> Pace:
    """Time two sessions in turn.

    Args:
        before: A session.
        after: Another of the same inputs.
        requests: What to ask both.
    """
    feeds = [feed(request) for request in requests]
    first = _once(before, feeds) + _once(after, feeds)  # warms both up
    rounds = max(3, min(50, int(BUDGET / max(first, 1e-6))))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        times[0].append(_once(before, feeds))
        times[1].append(_once(after, feeds))
    return Pace(1e3 * statistics.median(times[0]), 1e3 * statistics.median(times[1]))


def _once(session: Any, feeds: Sequence[Any]) -> float:
    start = time.perf_counter()
    for request in feeds:
        session.run(None, request)
    return time.perf_counter() - start
