"""Clients of the decoupled model: generate_stream, whole and cut off."""

from __future__ import annotations

import asyncio
import json
import random

from tests.soak.context import Soak
from tests.soak.ledger import ANSWER_SECONDS, Wrong
from tests.soak.truth import now, reason_for
from tests.soak.wire import Ended, Reply, Wire, request

_MODEL = "burst"
_MOST = 40


class Streams:
    """Asks for streams; reads most to their end, some slowly, and leaves some in the middle."""

    def __init__(self, soak: Soak, name: str) -> None:
        self._soak = soak
        self._name = name
        self._rng: random.Random = soak.rng(name)

    async def run(self) -> None:
        """Ask until the end."""
        rng = self._rng
        async for _ in self._soak.rounds(self._name, lambda: rng.expovariate(10)):
            with self._soak.noting(self._name):
                await self._ask()

    async def _ask(self) -> None:
        rng, ledger = self._rng, self._soak.ledger
        count = rng.choice((0, 1, 2, 7, _MOST))
        one = count == 1 and rng.random() < 0.5
        path = f"/v2/models/{_MODEL}/generate" + ("" if one else "_stream")
        wire = await Wire.open(self._soak.server.port)
        try:
            since = now()
            ledger.sent[_MODEL] += 1
            wire.send(request("POST", path, json.dumps({"id": "s", "IN": count}).encode()))
            if rng.random() < 0.15:
                await asyncio.sleep(rng.random() * 0.02)
                ledger.abandoned[_MODEL] += 1
                ledger.done["streams left in the middle"] += 1
                return
            if rng.random() < 0.15:
                wire.transport.pause_reading()
                await asyncio.sleep(rng.random())
                if not wire.ended:
                    wire.transport.resume_reading()
            async with asyncio.timeout(ANSWER_SECONDS):
                reply = await wire.reply()
            ledger.answered(_MODEL, now() - since)
            reason = self._check(reply, count, since, one=one)
            if reason:
                ledger.refused[_MODEL, reason] += 1
            else:
                ledger.good[_MODEL] += 1
        except (TimeoutError, Ended) as exc:
            raise Wrong(f"{path} of {count}: no answer ({type(exc).__name__} {exc})") from exc
        finally:
            wire.close()

    def _check(self, reply: Reply, count: int, since: float, *, one: bool) -> str:
        """See ``asking.check``."""
        life = self._soak.lives[_MODEL]
        # A model's error comes as an event too, under its own status if it is the first one.
        if reply.headers.get("content-type", "").startswith("text/event-stream"):
            events = [event for event in reply.body.split(b"\n\n") if event]
            if not all(event.startswith(b"data: ") for event in events):
                raise Wrong(f"no server-sent events: {reply.body[:300]!r}")
            documents = [json.loads(event.removeprefix(b"data: ")) for event in events]
        else:
            documents = [reply.json]
        if one and reply.headers.get("content-type") != "application/json":
            raise Wrong(f"generate answered {reply.headers}")
        errors = [document["error"] for document in documents if "error" in document]
        good = documents[: len(documents) - len(errors)]
        versions = {int(document["model_version"]) for document in good}
        if len(versions) > 1 or any(not life.may_answer(v, since, now()) for v in versions):
            raise Wrong(f"versions {versions} answered a stream")
        factor = versions.pop() if versions else 0
        for index, document in enumerate(good):
            if document["OUT"] != (index + 1) * factor or document.get("id") != "s":
                raise Wrong(f"response {index} of a stream is {document}")
        if errors:
            text = errors[0]
            reason = reason_for(
                self._soak.models[_MODEL], life, reply.status if not good else 500, text, since, now(), 0
            )
            if len(errors) > 1 or not reason:
                raise Wrong(f"a stream of {count} had {len(good)} responses and {errors}")
            return reason
        if reply.status != 200 or len(good) != count:
            raise Wrong(f"a stream of {count}: status {reply.status}, {len(good)} responses")
        return ""
