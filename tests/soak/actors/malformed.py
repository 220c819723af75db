"""Requests that are wrong: each must be told why, and cost nobody else anything."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable

from tests.soak.context import Soak
from tests.soak.ledger import ANSWER_SECONDS, Wrong
from tests.soak.wire import Ended, Wire, request

_GARBAGE = (b"\x16\x03\x01\x02\x00\x01\x00\x01", b"GARBAGE\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 64)
_POST = "/v2/models/scale/infer"
_TOO_LARGE = f"POST {_POST} HTTP/1.1\r\nHost: soak\r\nContent-Length: 99999999999\r\n\r\n{{}}".encode()


class Malformed:
    """Sends nonsense.

    Args:
        soak: What actors share.
    """

    def __init__(self, soak: Soak) -> None:
        self._soak = soak
        self._rng: random.Random = soak.rng("malformed")
        self._cases: tuple[tuple[int, Callable[[], bytes]], ...] = (
            (404, lambda: request("POST", "/v2/models/nobody/infer", b"{}")),
            (404, lambda: request("GET", "/v2/nothing")),
            (404, lambda: request("POST", "/v2/models/scale/versions/999999/infer", b"{}")),
            (500, lambda: request("POST", _POST, b"{}")),
            (405, lambda: request("DELETE", _POST)),
            (500, lambda: request("POST", _POST, b'{"inputs": [')),
            (500, lambda: request("POST", _POST, b"[1, 2, 3]")),
            (500, lambda: request("POST", _POST, self._random_bytes())),
            (400, lambda: self._infer({"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [1]})),
            (400, lambda: self._infer({"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [1]})),
            (400, lambda: self._infer({"name": "IN", "datatype": "FP32", "shape": [9, 1], "data": [1] * 9})),
            (400, lambda: self._infer({"name": "IN", "datatype": "FP32", "shape": [1, 1]})),
            (400, lambda: request("POST", _POST, b"{}", {"Inference-Header-Content-Length": "-1"})),
            (501, lambda: request("POST", _POST, b"{}", {"Content-Encoding": "br"})),
            (400, lambda: request("POST", _POST, self._random_bytes(), {"Content-Encoding": "gzip"})),
            (400, lambda: _TOO_LARGE),
        )

    async def run(self) -> None:
        """Send until the end."""
        rng = self._rng
        async for _ in self._soak.rounds("malformed", lambda: rng.expovariate(10)):
            with self._soak.noting("malformed"):
                await (self._garbage() if rng.random() < 0.2 else self._wrong())
                self._soak.ledger.done["malformed requests"] += 1

    def _random_bytes(self) -> bytes:
        return b"\xff" + self._rng.randbytes(self._rng.randint(1, 2000))

    def _infer(self, tensor: dict[str, object]) -> bytes:
        return request("POST", _POST, json.dumps({"id": "bad", "inputs": [tensor]}).encode())

    async def _wrong(self) -> None:
        status, make = self._rng.choice(self._cases)
        data = make()
        wire = await Wire.open(self._soak.server.port)
        try:
            wire.send(data)
            async with asyncio.timeout(ANSWER_SECONDS):
                reply = await wire.reply()
            if reply.status != status or not reply.error:
                raise Wrong(f"expected {status}, got {reply.status} {reply.body[:200]!r} for {data[:200]!r}")
            if data is _TOO_LARGE:
                return
            # The same connection serves on.
            wire.send(request("GET", "/v2/health/live"))
            async with asyncio.timeout(ANSWER_SECONDS):
                reply = await wire.reply()
            if reply.status != 200:
                raise Wrong(f"after a wrong request: {reply.status} {reply.body[:200]!r}, {data[:200]!r}")
        except (TimeoutError, Ended) as exc:
            raise Wrong(f"no answer ({type(exc).__name__} {exc}) to {data[:200]!r}") from exc
        finally:
            wire.close()

    async def _garbage(self) -> None:
        data = self._rng.choice(_GARBAGE)
        wire = await Wire.open(self._soak.server.port)
        wire.send(data)
        if not await wire.closed(ANSWER_SECONDS):
            raise Wrong(f"a connection with {data[:40]!r} was kept")
        wire.close()
