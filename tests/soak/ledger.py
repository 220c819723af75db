"""Every request that was sent and what came of it; every rule that was broken."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.soak.truth import now

ANSWER_SECONDS = 20
_MOST_TOLD = 50


@dataclass
class Ledger:
    """The book of the soak.

    Attributes:
        sent: Requests by model.
        good: Right answers by model.
        refused: Allowed refusals by model and reason.
        abandoned: Requests whose client went away, by model.
        done: What actors did, by name of the deed.
        violations: What must not have happened, the first ones in words.
        broken: How many there were.
        slowest: Longest time to an answer, in seconds, by model.
    """

    sent: Counter[str] = field(default_factory=Counter)
    good: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    abandoned: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    broken: int = 0
    slowest: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=now)

    def violated(self, what: str) -> None:
        """Note a broken rule."""
        self.broken += 1
        if len(self.violations) < _MOST_TOLD:
            self.violations.append(f"{now() - self.began:8.3f} s: {what}")

    def answered(self, model: str, seconds: float) -> None:
        """Note how long a request took."""
        self.slowest[model] = max(self.slowest.get(model, 0.0), seconds)
        if seconds > ANSWER_SECONDS:
            self.violated(f"{model}: an answer took {seconds:.1f} s")

    def open_requests(self) -> int:
        """Requests without an outcome."""
        closed = self.good.total() + self.refused.total() + self.abandoned.total()
        return self.sent.total() - closed

    @contextlib.contextmanager
    def wrong(self, where: str) -> Iterator[None]:
        """Note a failed check, given as ``Wrong``, and go on."""
        try:
            yield
        except Wrong as exc:
            self.violated(f"{where}: {exc}")


class Wrong(Exception):
    """A check failed; its text says what was expected and what came."""
