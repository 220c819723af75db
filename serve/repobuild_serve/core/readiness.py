"""Whether requests can be run: what is known at once, and what must be asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Check = Callable[[], Awaitable[bool]]
"""Asks an instance, from the call on, whether it is ready. The answer comes within some seconds."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """How ready something is.

    Attributes:
        up: Whether all its instances are up.
        checks: Asks those of them that have a say in it.
    """

    up: bool
    checks: tuple[Check, ...] = ()

    @property
    def settled(self) -> bool:
        """Whether ``up`` is the answer, and nothing need be asked."""
        return not (self.up and self.checks)

    async def ask(self) -> bool:
        """The answer, after asking all instances at the same time."""
        if self.settled:
            return self.up
        answers = [check() for check in self.checks]
        for answer in answers:
            if not await answer:
                return False
        return True


READY = Readiness(up=True)
DOWN = Readiness(up=False)
