"""What was possible when: the versions that could answer, and the refusals that could be given."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field

from tests.soak.models import Model

_FOR_EVER = float("inf")


@dataclass
class Span:
    """A time, by ``time.monotonic()``, from when something became possible to when it had surely ended."""

    since: float
    until: float = _FOR_EVER

    def meets(self, start: float, end: float) -> bool:
        """Whether any moment of ``[start, end]`` lies in it."""
        return self.since <= end and start <= self.until


@dataclass
class Life:
    """The past of one model, kept by the actors that change it.

    Attributes:
        versions: By version, when it could answer; a version is written once.
        absences: When the model could be away.
        resets: When its counters could start anew.
        lost: When python instances could be gone.
        current: The newest version that is known to serve.
    """

    versions: dict[int, Span] = field(default_factory=dict)
    absences: list[Span] = field(default_factory=list)
    resets: list[Span] = field(default_factory=list)
    lost: list[Span] = field(default_factory=list)
    current: int = 1

    def may_answer(self, version: int, start: float, end: float) -> bool:
        """Whether a version could answer a request that was under way from ``start`` to ``end``."""
        span = self.versions.get(version)
        return span is not None and span.meets(start, end)

    def surely_serves(self, version: int, start: float, end: float) -> bool:
        """Whether a version served all the time: no other one could, and the model was not away."""
        others = any(span.meets(start, end) for number, span in self.versions.items() if number != version)
        return not others and not self.away(start, end)

    def away(self, start: float, end: float) -> bool:
        """Whether the model could be away at any moment between."""
        return any(span.meets(start, end) for span in self.absences)

    def maimed(self, start: float, end: float) -> bool:
        """Whether instances could be gone at any moment between."""
        return any(span.meets(start, end) for span in self.lost)

    def reset(self, start: float, end: float) -> bool:
        """Whether counters could start anew at any moment between."""
        return any(span.meets(start, end) for span in self.resets)


def now() -> float:
    """The clock of this module."""
    return time.monotonic()


@dataclass(frozen=True)
class Reason:
    """A refusal that is allowed.

    Attributes:
        name: What it is called in the table of results.
        status: HTTP status.
        text: What the whole error text matches.
    """

    name: str
    status: int
    text: str

    def fits(self, status: int, text: str) -> bool:
        """Whether a refusal is this one."""
        return status == self.status and re.fullmatch(self.text, text, re.DOTALL) is not None


_ID = r"\[request id: [^\]]*\] "
FULL = Reason("queue full", 503, _ID + "Exceeds maximum queue size")
EXPIRED = Reason("queue time-out", 503, "Request timeout expired")
AWAY = (
    Reason("unloaded", 404, "Request for unknown model: '{name}' has no available versions"),
    Reason("unknown", 404, "Request for unknown model: '{name}' is not found"),
    Reason("unloading", 503, "Request for unknown model: '{name}' version [0-9]+ is not at ready state"),
)
OTHER_VERSION = (
    Reason("version unknown", 404, "Request for unknown model: '{name}' version [0-9]+ is not found"),
    Reason("version gone", 503, "Request for unknown model: '{name}' version [0-9]+ is not at ready state"),
)
KILLED = Reason(
    "instance killed",
    500,
    "(in ensemble 'chain', )?Stub process '(snake|burst)_[0-9]+_[0-9]+' is not healthy\\.",
)


def reason_for(
    model: Model, life: Life, status: int, text: str, since: float, until: float, version: int
) -> str:
    """Name of the allowed reason for which a request was refused; empty if it must not have been.

    Args:
        model: Whose request it was.
        life: What happened to the model.
        status: HTTP status of the refusal.
        text: Its error text.
        since: When the request was sent.
        until: When the refusal arrived.
        version: Version that the request named; 0 for none.
    """
    allowed: list[Reason] = []
    if "full" in model.queued:
        allowed.append(FULL)
    if "expired" in model.queued:
        allowed.append(EXPIRED)
    if life.away(since, until):
        allowed += AWAY
    if version and not life.surely_serves(version, since, until):
        allowed += OTHER_VERSION
    if model.python and life.maimed(since, until):
        allowed.append(KILLED)
    for reason in allowed:
        named = Reason(reason.name, reason.status, reason.text.replace("{name}", model.name))
        if named.fits(status, text):
            return reason.name
    return ""
