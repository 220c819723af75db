"""The floor of the comparison: an asyncio.Protocol that knows one model and checks nothing.

uvloop, httptools and orjson, a list of waiting requests, one run per 32 of them or after 5 ms, on the loop's
thread.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import httptools
import numpy as np
import onnxruntime
import orjson
import uvloop

MAX_BATCH = 32
MAX_WAIT = 0.005


class Batcher:
    """Collects rows and answers them together."""

    def __init__(self, model: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.waiting: list[tuple[asyncio.Transport, list[float]]] = []
        self.timer: asyncio.TimerHandle | None = None

    def add(self, transport: asyncio.Transport, row: list[float]) -> None:
        """Queue a row, and run if the batch is full."""
        self.waiting.append((transport, row))
        if len(self.waiting) >= MAX_BATCH:
            self.run()
        elif self.timer is None:
            self.timer = asyncio.get_running_loop().call_later(MAX_WAIT, self.run)

    def run(self) -> None:
        """Run what waits, and answer it."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        batch, self.waiting = self.waiting, []
        rows = np.array([row for _, row in batch], dtype=np.float32)
        for (transport, _), value in zip(
            batch, self.session.run(["OUTPUT0"], {"INPUT0": rows})[0].tolist(), strict=True
        ):
            output = {"name": "OUTPUT0", "datatype": "FP32", "shape": [1, 1], "data": value}
            body = orjson.dumps({"model_name": "risk_model", "model_version": "1", "outputs": [output]})
            transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(body), body)
            )


class Protocol(asyncio.Protocol):
    """One connection."""

    def __init__(self, batcher: Batcher) -> None:
        self.batcher = batcher
        self.body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop when a client has connected."""
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        """Called with what the client sent."""
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """Called with each piece of a body."""
        self.body += body

    def on_message_complete(self) -> None:
        """Called at the end of a request."""
        item = orjson.loads(self.body)["inputs"][0]
        self.body = b""
        self.batcher.add(self.transport, item["data"][0])  # type: ignore[arg-type]


def announce(port_file: str, port: int) -> None:
    """Write the port where the benchmark looks for it."""
    temporary = Path(port_file + ".new")
    temporary.write_text(json.dumps({"http": port, "pid": os.getpid()}), encoding="utf-8")
    temporary.replace(port_file)


async def main(model: str, port_file: str) -> None:
    loop = asyncio.get_running_loop()
    batcher = Batcher(model)
    server = await loop.create_server(lambda: Protocol(batcher), "127.0.0.1", 0, backlog=1024)
    announce(port_file, server.sockets[0].getsockname()[1])
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2]))
