"""Clients that hang up at every stage of a request, and ones that just stop."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct

from tests.soak.asking import Asker
from tests.soak.context import Soak
from tests.soak.ledger import ANSWER_SECONDS, Wrong
from tests.soak.models import Model
from tests.soak.server import READ_SECONDS, WRITE_SECONDS
from tests.soak.wire import Ended, Wire


class Disconnects:
    """Opens connections only to drop them.

    Args:
        soak: What actors share.
        name: Its name.
        models: Whom it asks.
    """

    def __init__(self, soak: Soak, name: str, models: list[Model]) -> None:
        self._soak = soak
        self._name = name
        self._models = models
        self._rng: random.Random = soak.rng(name)
        self._asker = Asker(self._rng, name)

    async def run(self) -> None:
        """Hang up until the end."""
        rng = self._rng
        ways = (self._half_head, self._half_body, self._after_request, self._after_request, self._reset)
        rare = (self._stall, self._deaf, self._half_close)
        async for _ in self._soak.rounds(self._name, lambda: rng.expovariate(15)):
            way = rng.choice(rare) if rng.random() < 0.03 else rng.choice(ways)
            with self._soak.noting(f"{self._name}, {way.__name__.strip('_')}"):
                await way()
                self._soak.ledger.done["clients that hung up"] += 1

    def _request(self) -> tuple[str, bytes]:
        model = self._rng.choice(self._models)
        return model.name, self._asker.question(model).data

    async def _half_head(self) -> None:
        _, data = self._request()
        await self._sent(data[: self._rng.randint(1, data.find(b"\r\n\r\n"))])

    async def _half_body(self) -> None:
        _, data = self._request()
        await self._sent(data[: self._rng.randint(data.find(b"\r\n\r\n") + 4, len(data) - 1)])

    async def _after_request(self) -> None:
        """Whole requests, several perhaps, whose answers nobody waits for."""
        requests = [self._request() for _ in range(self._rng.choice((1, 1, 2, 5)))]
        for name, _ in requests:
            self._soak.ledger.sent[name] += 1
            self._soak.ledger.abandoned[name] += 1
        await self._sent(b"".join(data for _, data in requests))

    async def _sent(self, data: bytes) -> None:
        wire = await Wire.open(self._soak.server.port)
        wire.send(data)
        if self._rng.random() < 0.7:
            await asyncio.sleep(self._rng.random() * 0.02)
        if self._rng.random() < 0.5:
            wire.close()
        else:
            wire.transport.close()
            await wire.closed(2)
            wire.close()

    async def _reset(self) -> None:
        """A reset in place of an orderly end."""
        name, data = self._request()
        wire = await Wire.open(self._soak.server.port)
        self._soak.ledger.sent[name] += 1
        self._soak.ledger.abandoned[name] += 1
        wire.send(data)
        raw = wire.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await asyncio.sleep(0.001)
        wire.close()

    async def _stall(self) -> None:
        """A request that stops in its middle: the server must end it."""
        _, data = self._request()
        wire = await Wire.open(self._soak.server.port)
        wire.send(data[: self._rng.randint(1, len(data) - 1)])
        if not await wire.closed(READ_SECONDS + 5):
            wire.close()
            raise Wrong(f"half a request was kept for {READ_SECONDS + 5} s")
        wire.close()
        self._soak.ledger.done["stalled requests ended by the server"] += 1

    async def _half_close(self) -> None:
        """A client that says that it sends no more still gets its answer, and the server then ends."""
        model = next(model for model in self._models if not model.python)
        question = self._asker.question(model)
        wire = await Wire.open(self._soak.server.port)
        self._soak.ledger.sent[model.name] += 1
        wire.send(question.data)
        wire.transport.write_eof()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await wire.reply()
        except (TimeoutError, Ended) as exc:
            raise Wrong(f"no answer after a half close: {question.told()}") from exc
        finally:
            self._soak.ledger.abandoned[model.name] += 1
        ended = await wire.closed(5)
        wire.close()
        if not ended:
            raise Wrong("a half closed connection was kept")

    async def _deaf(self) -> None:
        """A client that asks for much and reads nothing: the server must end it, or hold it bounded."""
        model = self._soak.models.get("large")
        if model is None:
            return
        wire = await Wire.open(self._soak.server.port)
        wire.transport.pause_reading()
        with contextlib.suppress(asyncio.CancelledError):
            for _ in range(60):
                if wire.ended:
                    break
                self._soak.ledger.sent[model.name] += 1
                self._soak.ledger.abandoned[model.name] += 1
                wire.send(self._asker.question(model).data)
                await asyncio.sleep(0.01)
            await asyncio.sleep(WRITE_SECONDS + 4)
        wire.close()
        self._soak.ledger.done["clients that read nothing"] += 1
