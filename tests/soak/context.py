"""What all actors share: the server, the models, what is known of them, the book, and the gate."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from tests.soak.ledger import Ledger, Wrong
from tests.soak.models import Model, Repository
from tests.soak.server import Server
from tests.soak.truth import Life


class Gate:
    """Lets actors work in rounds, and holds them back while the server is looked at in peace."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._still = asyncio.Event()
        self._still.set()
        self._rounds = 0

    @contextlib.asynccontextmanager
    async def round(self) -> AsyncIterator[None]:
        """One piece of work; begins only while the gate is open."""
        await self._open.wait()
        self._rounds += 1
        self._still.clear()
        try:
            yield
        finally:
            self._rounds -= 1
            if not self._rounds:
                self._still.set()

    @contextlib.asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """A time in which no round is under way.

        Raises:
            TimeoutError: A round does not end.
        """
        self._open.clear()
        try:
            async with asyncio.timeout(150):
                await self._still.wait()
            yield
        finally:
            self._open.set()


@dataclass
class Soak:
    """What all actors share.

    Attributes:
        server: The server.
        repository: Its models on disk.
        models: The models by name.
        mode: Control mode: ``explicit``, ``poll`` or ``none``.
        seed: What all random decisions come from.
        pace: Factor on all pauses of actors.
        ledger: The book.
        lives: What was possible, by model.
        gate: Where actors wait.
        ending: Set when actors are to stop.
        paused: Called when the load pauses, to close connections that are kept.
    """

    server: Server
    repository: Repository
    models: dict[str, Model]
    mode: str
    seed: int
    pace: float = 1.0
    ledger: Ledger = field(default_factory=Ledger)
    lives: dict[str, Life] = field(default_factory=dict)
    gate: Gate = field(default_factory=Gate)
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    paused: list[Callable[[], None]] = field(default_factory=list)

    def rng(self, name: str) -> random.Random:
        """An actor's own source of decisions."""
        return random.Random(f"{self.seed} {name}")

    async def pause(self, seconds: float) -> None:
        """Wait, but not beyond the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds * self.pace):
                await self.ending.wait()

    async def rounds(self, name: str, pause: Callable[[], float]) -> AsyncIterator[None]:
        """Rounds of an actor until the end, with a pause before each; what it finds wrong is noted."""
        while True:
            await self.pause(pause())
            if self.ending.is_set():
                return
            async with self.gate.round():
                yield None

    @contextlib.contextmanager
    def noting(self, name: str):
        """Note what a piece of work finds wrong."""
        try:
            yield
        except Wrong as exc:
            self.ledger.violated(f"{name}: {exc}")
        except OSError as exc:
            self.ledger.violated(f"{name}: {type(exc).__name__}: {exc}")
