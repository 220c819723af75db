"""Unloads and loads a model while it is asked."""

from __future__ import annotations

import asyncio
import random

from tests.soak.actors.swapper import LOAD_SECONDS, bring
from tests.soak.context import Soak
from tests.soak.ledger import Wrong
from tests.soak.truth import Span, now
from tests.soak.wire import ask

_MODEL = "visitor"


class Visitor:
    """Lets the model ``visitor`` go and come back, at once or after a while.

    Args:
        soak: What actors share.
        every: Mean pause in seconds.
    """

    def __init__(self, soak: Soak, every: float) -> None:
        self._soak = soak
        self._every = every
        self._rng: random.Random = soak.rng("visitor")

    async def run(self) -> None:
        """Unload and load until the end; the model is there afterwards."""
        rng = self._rng
        async for _ in self._soak.rounds("visitor", lambda: rng.uniform(0.3, 1.7) * self._every):
            with self._soak.noting("visitor"):
                await (self._polled() if self._soak.mode == "poll" else self._asked())
                self._soak.ledger.done["unloads"] += 1

    async def _asked(self) -> None:
        soak, life = self._soak, self._soak.lives[_MODEL]
        span = Span(now())
        life.absences.append(span)
        life.resets.append(span)
        reply = await ask(soak.server.port, "POST", f"/v2/repository/models/{_MODEL}/unload")
        if reply.status != 200:
            raise Wrong(f"unload: {reply.status} {reply.body[:300]!r}")
        if self._rng.random() < 0.7:
            await soak.pause(self._rng.uniform(0.05, 1.5))
            # After it has gone, no request may be answered.
            reply = await ask(soak.server.port, "GET", f"/v2/models/{_MODEL}")
            if reply.status not in {400, 404, 503}:
                raise Wrong(f"an unloaded model has metadata: {reply.status} {reply.body[:200]!r}")
        await bring(soak, _MODEL, life.current)
        span.until = now()

    async def _polled(self) -> None:
        soak, life = self._soak, self._soak.lives[_MODEL]
        span = Span(now())
        life.absences.append(span)
        life.resets.append(span)
        soak.repository.hide(soak.models[_MODEL])
        deadline = now() + LOAD_SECONDS
        while (await ask(soak.server.port, "GET", f"/v2/models/{_MODEL}")).status == 200:
            if now() > deadline:
                raise Wrong("polling has not unloaded the model")
            await asyncio.sleep(0.1)
        soak.repository.show(soak.models[_MODEL])
        await bring(soak, _MODEL, life.current)
        span.until = now()
