"""Brings new versions of models that serve."""

from __future__ import annotations

import asyncio
import random

from tests.soak.context import Soak
from tests.soak.ledger import Wrong
from tests.soak.models import MEMBERS, Model
from tests.soak.truth import Life, Span, now
from tests.soak.wire import ask

LOAD_SECONDS = 90
_BROKEN_EVERY = 5
_POLLED_SECONDS = 3


class Swapper:
    """Writes a new version, has it loaded, and removes the old one; now and then the new one is broken.

    Args:
        soak: What actors share.
        models: Whose versions it swaps.
        every: Mean pause in seconds.
    """

    def __init__(self, soak: Soak, models: list[Model], every: float) -> None:
        self._soak = soak
        self._models = models
        self._breakable = [model for model in models if model.backend in {"onnxruntime", "python"}]
        self._every = every
        self._rng: random.Random = soak.rng("swapper")

    async def run(self) -> None:
        """Swap until the end."""
        rng, rounds = self._rng, 0
        async for _ in self._soak.rounds("swapper", lambda: rng.uniform(0.2, 2) * self._every):
            rounds += 1
            broken = bool(self._breakable) and rounds % _BROKEN_EVERY == 0
            model = rng.choice(self._breakable if broken else self._models)
            with self._soak.noting(f"swapper, {model.name}"):
                await (self._fail(model) if broken else self._swap(model))

    async def _swap(self, model: Model) -> None:
        soak = self._soak
        life, start = soak.lives[model.name], now()
        old, new = life.current, max(life.versions) + 1
        life.versions[new] = Span(start)
        reset = Span(start)
        for changed in affected(soak, model.name):
            changed.resets.append(reset)
        soak.repository.add_version(model, new)
        await bring(soak, model.name, new)
        end = now()
        life.versions[old].until = end
        life.current = new
        soak.repository.remove_version(model, old)
        # A poll brings ensembles up after their members, and again for a folder that is gone.
        reset.until = now() + (_POLLED_SECONDS if soak.mode == "poll" else 0)
        soak.ledger.done["versions swapped"] += 1

    async def _fail(self, model: Model) -> None:
        """A version that cannot be loaded: the old one serves on."""
        soak = self._soak
        life = soak.lives[model.name]
        new, reset = max(life.versions) + 1, Span(now())
        for changed in affected(soak, model.name):
            if changed is not life:
                changed.resets.append(reset)
        soak.repository.add_broken_version(model, new)
        try:
            if soak.mode == "poll":
                await soak.pause(_POLLED_SECONDS)
            else:
                reply = await ask(
                    soak.server.port, "POST", f"/v2/repository/models/{model.name}/load", seconds=LOAD_SECONDS
                )
                wanted = f"load failed for model '{model.name}': version {new} is at UNAVAILABLE state: "
                if reply.status != 400 or not reply.error.startswith(wanted):
                    raise Wrong(f"a broken version: {reply.status} {reply.body[:300]!r}")
        finally:
            # Without the broken version there is nothing new on disk: what serves may still be loaded anew.
            life.resets.append(own := Span(now()))
            soak.repository.remove_version(model, new)
        await bring(soak, model.name, life.current)
        own.until = reset.until = now() + (_POLLED_SECONDS if soak.mode == "poll" else 0)
        soak.ledger.done["broken versions"] += 1


def affected(soak: Soak, name: str) -> list[Life]:
    """The lives of a model and of the ensembles that come up anew with it."""
    names = [name, *(["chain"] if name in MEMBERS else [])]
    return [soak.lives[each] for each in names if each in soak.lives]


async def bring(soak: Soak, name: str, version: int) -> None:
    """Have what is on disk loaded, and wait until that has happened.

    Raises:
        Wrong: It did not.
    """
    if soak.mode == "explicit":
        await _load(soak, name)
    deadline = now() + LOAD_SECONDS
    while True:
        reply = await ask(soak.server.port, "GET", f"/v2/models/{name}")
        if reply.status == 200 and reply.json["versions"] == [str(version)]:
            return
        if soak.mode == "explicit":
            raise Wrong(f"after a load: {reply.status} {reply.body[:300]!r}, expected version {version}")
        if now() > deadline:
            raise Wrong(f"polling has not brought version {version}: {reply.body[:300]!r}")
        await asyncio.sleep(0.05)


async def _load(soak: Soak, name: str) -> None:
    """Ask for a load, again if a process that was just coming up has been killed."""
    while True:
        start = now()
        reply = await ask(
            soak.server.port, "POST", f"/v2/repository/models/{name}/load", seconds=LOAD_SECONDS
        )
        if reply.status == 200 and not reply.body:
            return
        killed = reply.status in {400, 500} and "is not healthy" in reply.error
        if not killed or not soak.lives[name].maimed(start, now()):
            raise Wrong(f"load: {reply.status} {reply.body[:500]!r}")
        soak.ledger.done["loads that lost their process"] += 1
