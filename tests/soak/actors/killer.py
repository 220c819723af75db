"""Kills processes of python instances."""

from __future__ import annotations

import asyncio
import random

import psutil

from tests.soak.context import Soak
from tests.soak.ledger import Wrong
from tests.soak.truth import Span, now
from tests.soak.wire import ask

BACK_SECONDS = 90
_MODELS = ("snake", "burst")


class Killer:
    """Sends SIGKILL to children of the server, one at a time or all together, and waits until they are back.

    Args:
        soak: What actors share.
        children: How many processes of python instances there are.
        every: Mean pause in seconds.
    """

    def __init__(self, soak: Soak, children: int, every: float) -> None:
        self._soak = soak
        self._children = children
        self._every = every
        self._rng: random.Random = soak.rng("killer")

    async def run(self) -> None:
        """Kill until the end."""
        rng = self._rng
        async for _ in self._soak.rounds("killer", lambda: rng.uniform(0.5, 1.5) * self._every):
            with self._soak.noting("killer"):
                await self._kill()

    async def _kill(self) -> None:
        soak, rng = self._soak, self._rng
        there = sorted(soak.server.python_children(), key=lambda child: child.pid)
        victims = there if rng.random() < 0.1 else rng.sample(there, min(len(there), rng.randint(1, 2)))
        span = Span(now())
        for name in (*_MODELS, "chain"):
            if name in soak.lives:
                soak.lives[name].lost.append(span)
        killed = set()
        for victim in victims:
            try:
                victim.kill()
            except psutil.NoSuchProcess:
                continue
            killed.add(victim.pid)
            soak.ledger.done["python instances killed"] += 1
        deadline = now() + BACK_SECONDS
        while not await self._back(killed):
            if now() > deadline:
                raise Wrong(f"{BACK_SECONDS} s after {len(killed)} instances were killed they are not back")
            await asyncio.sleep(0.1)
        # What was told by an instance that was lost may still be on its way.
        span.until = now() + 1

    async def _back(self, killed: set[int]) -> bool:
        pids = {child.pid for child in self._soak.server.python_children()}
        if len(pids) < self._children or pids & killed:
            return False
        for name in _MODELS:
            if name in self._soak.lives:
                reply = await ask(self._soak.server.port, "GET", f"/v2/models/{name}/ready")
                if reply.status != 200:
                    return False
        return True
