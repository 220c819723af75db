"""HTTP over a raw connection: bytes out as the caller wants them, answers in, one by one."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from dataclasses import dataclass
from typing import Any

from tests.soak.ledger import Wrong


class Ended(Exception):
    """The server closed the connection."""


@dataclass(frozen=True)
class Reply:
    """An answer, read whole."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON.

        Raises:
            Wrong: It is none.
        """
        try:
            return json.loads(self.body)
        except ValueError as exc:
            raise Wrong(f"status {self.status} with a body that is no JSON: {self.body[:200]!r}") from exc

    @property
    def error(self) -> str:
        """The text of an error body.

        Raises:
            Wrong: It is no error body that says anything.
        """
        document = self.json
        if not isinstance(document, dict) or list(document) != ["error"] or not document["error"]:
            raise Wrong(f"status {self.status} without a reason: {self.body[:200]!r}")
        return str(document["error"])


class Wire(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._more = asyncio.Event()
        self.ended = False
        self.transport: asyncio.Transport

    @classmethod
    async def open(cls, port: int) -> Wire:
        """Connect."""
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(cls, "127.0.0.1", port)
        return wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.BaseProtocol``."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.BaseProtocol``."""
        self.ended = True
        self._more.set()

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        self._data += data
        self._more.set()

    def send(self, data: bytes) -> None:
        """Send bytes; nothing happens if the connection has ended."""
        if not self.ended:
            self.transport.write(data)

    def close(self) -> None:
        """End at once."""
        self.transport.abort()

    def left(self) -> bytes:
        """What has come and was not asked for."""
        return bytes(self._data)

    async def reply(self) -> Reply:
        """The next answer.

        Raises:
            Ended: The connection ended before it was complete.
            Wrong: It is no HTTP.
        """
        head = (await self._until(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        version, _, rest = first.partition(" ")
        if version not in {"HTTP/1.1", "HTTP/1.0"} or not rest[:3].isdigit():
            raise Wrong(f"an answer begins with {first[:100]!r}")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        status = int(rest[:3])
        if status == 100:
            return await self.reply()
        if headers.get("transfer-encoding") == "chunked":
            return Reply(status, headers, await self._chunks())
        return Reply(status, headers, await self._exactly(int(headers.get("content-length", "0"))))

    async def closed(self, seconds: float) -> bool:
        """Whether the server ends the connection in time."""
        try:
            async with asyncio.timeout(seconds):
                while not self.ended:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            return False
        return True

    async def _chunks(self) -> bytes:
        body = bytearray()
        while True:
            size = int((await self._until(b"\r\n")).strip(), 16)
            body += (await self._exactly(size + 2))[:size]
            if not size:
                return bytes(body)

    async def _until(self, mark: bytes) -> bytes:
        while (end := self._data.find(mark)) < 0:
            await self._wait()
        return self._take(end + len(mark))

    async def _exactly(self, size: int) -> bytes:
        while len(self._data) < size:
            await self._wait()
        return self._take(size)

    async def _wait(self) -> None:
        if self.ended:
            raise Ended(bytes(self._data[:200]))
        self._more.clear()
        await self._more.wait()

    def _take(self, size: int) -> bytes:
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken


def decoded(reply: Reply) -> bytes:
    """The body without its content coding."""
    coding = reply.headers.get("content-encoding", "")
    if coding == "gzip":
        return gzip.decompress(reply.body)
    if coding == "deflate":
        return zlib.decompress(reply.body)
    if coding:
        raise Wrong(f"unasked content coding {coding}")
    return reply.body


def request(method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
    """The bytes of a request with a body of known length."""
    fields = {"Host": "soak", **(headers or {}), "Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def chunked_request(path: str, body: bytes, headers: dict[str, str], size: int) -> bytes:
    """The bytes of a POST whose body comes in chunks of ``size`` bytes."""
    fields = {"Host": "soak", **headers, "Transfer-Encoding": "chunked"}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + chunks + b"0\r\n\r\n"


async def ask(port: int, method: str, path: str, document: Any = None, seconds: float = 60) -> Reply:
    """One request on a connection of its own.

    Raises:
        Wrong: No answer came, or none in time.
    """
    try:
        async with asyncio.timeout(seconds):
            wire = await Wire.open(port)
            try:
                body = b"" if document is None else json.dumps(document).encode()
                wire.send(request(method, path, body))
                return await wire.reply()
            finally:
                wire.close()
    except (TimeoutError, Ended, OSError) as exc:
        raise Wrong(f"{method} {path}: no answer ({type(exc).__name__}: {exc})") from exc
