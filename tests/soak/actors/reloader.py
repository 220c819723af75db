"""Changes the config of a model that serves: its instances in place, the rest by a reload; or breaks it."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable

from tests.soak.actors.swapper import LOAD_SECONDS, bring
from tests.soak.context import Soak
from tests.soak.ledger import Wrong
from tests.soak.models import TUNED_INSTANCES, config, tuned_rules
from tests.soak.truth import Span, now
from tests.soak.wire import ask

_MODEL = "tuned"
_POLLED_SECONDS = 4


class Reloader:
    """Works on the model ``tuned``.

    Args:
        soak: What actors share.
        every: Mean pause in seconds.
    """

    def __init__(self, soak: Soak, every: float) -> None:
        self._soak = soak
        self._every = every
        self._rng: random.Random = soak.rng("reloader")
        self._model = soak.models[_MODEL]
        self._instances = TUNED_INSTANCES
        self._delay = 300

    async def run(self) -> None:
        """Change configs until the end; leave the one of the start."""
        rng = self._rng
        ways = (self._resize, self._resize, self._reload, self._break, self._nothing)
        left: list[Callable[[], Awaitable[None]]] = []
        async for _ in self._soak.rounds("reloader", lambda: rng.uniform(0.3, 1.7) * self._every):
            with self._soak.noting("reloader"):
                # Each in its turn, in a new order every time, so that a short soak has them all.
                left = left or rng.sample(ways, len(ways))
                await left.pop()()
                # Every round ends with the instances of the start, so that threads can be compared.
                await self._apply(TUNED_INSTANCES, self._delay)

    async def _resize(self) -> None:
        """Only the number of instances: in place."""
        before = await self._count()
        await self._apply(self._rng.choice((1, 3, 4)), self._delay)
        if (after := await self._count()) < before:
            raise Wrong(f"a change of the instances took back the counters: {before} to {after}")
        self._soak.ledger.done["instances changed in place"] += 1

    async def _reload(self) -> None:
        await self._apply(self._instances, self._rng.choice((0, 200, 400, 1500)))
        self._soak.ledger.done["configs reloaded"] += 1

    async def _nothing(self) -> None:
        before = await self._count()
        await self._apply(self._instances, self._delay)
        if (after := await self._count()) < before:
            raise Wrong(f"a load without any change took back the counters: {before} to {after}")
        self._soak.ledger.done["loads without a change"] += 1

    async def _break(self) -> None:
        """A config that cannot be read: the old one stays."""
        soak = self._soak
        good = config(self._model, tuned_rules(self._instances, self._delay))
        soak.repository.write_config(self._model, good + "dynamic_batching { nonsense }\n")
        try:
            if soak.mode == "poll":
                await soak.pause(_POLLED_SECONDS)
            else:
                path = f"/v2/repository/models/{_MODEL}/load"
                reply = await ask(soak.server.port, "POST", path, seconds=LOAD_SECONDS)
                wanted = f"failed to load '{_MODEL}', failed to poll from model repository"
                if (reply.status, reply.error) != (500, wanted):
                    raise Wrong(f"a broken config: {reply.status} {reply.body[:300]!r}")
        finally:
            soak.repository.write_config(self._model, good)
        reply = await ask(soak.server.port, "GET", f"/v2/models/{_MODEL}/ready")
        if reply.status != 200:
            raise Wrong(f"after a broken config the old one does not serve: {reply.status}")
        soak.ledger.done["broken configs"] += 1

    async def _apply(self, instances: int, delay: int) -> None:
        soak, life = self._soak, self._soak.lives[_MODEL]
        full = delay != self._delay
        reset = Span(now())
        if full:
            life.resets.append(reset)
        soak.repository.write_config(self._model, config(self._model, tuned_rules(instances, delay)))
        self._instances, self._delay = instances, delay
        await bring(soak, _MODEL, life.current)
        await self._await_config(instances, delay)
        reset.until = now()

    async def _await_config(self, instances: int, delay: int) -> None:
        soak, deadline = self._soak, now() + (LOAD_SECONDS if self._soak.mode == "poll" else 0)
        while True:
            reply = await ask(soak.server.port, "GET", f"/v2/models/{_MODEL}/config")
            if reply.status == 200:
                found = reply.json
                counts = sum(group["count"] for group in found["instance_group"])
                if (counts, found["dynamic_batching"]["max_queue_delay_microseconds"]) == (instances, delay):
                    return
            if now() > deadline:
                text = json.dumps(reply.json)[:2000]
                raise Wrong(f"the config is not the one with {instances} instances, {delay} us: {text}")
            await soak.pause(0.1)

    async def _count(self) -> int:
        reply = await ask(self._soak.server.port, "GET", f"/v2/models/{_MODEL}/stats")
        return int(reply.json["model_stats"][0]["inference_count"])
