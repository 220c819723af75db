"""A backend for tests that answers request by request, as often as its input has elements.

Model: ``IN`` INT32, ``OUT`` INT32. Request parameters: ``act`` is what it does beside, ``times`` repeats the
elements, ``bytes`` sends texts of that size, ``wait`` makes it wait, after the first response, until the file
of that name exists.
"""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from repobuild_serve.core.execution import Outcome
from repobuild_serve.core.statistics import Timing
from repobuild_serve.core.ticket import Response, Tensor
from repobuild_serve.datatypes import BY_WIRE_NAME
from repobuild_serve.errors import Code, RequestError


def responses(ticket: Any) -> Any:
    """The responses to one request, one by one; the last one is final."""
    said = ticket.context.parameters
    act, number = said.get("act", ""), ticket.number
    if act == "error_first":
        yield Response(number, error=RequestError("first", Code.NOT_FOUND, tagged=True), final=False)
    values = np.frombuffer(ticket.inputs[0], dtype="<i4")
    values = np.tile(values, int(said.get("times", 1)))
    for index, value in enumerate(values.tolist()):
        if index == 1 and "wait" in said:
            while not Path(said["wait"]).exists():
                time.sleep(0.005)
        parameters = {"count": index, "half": 0.5, "nan": float("nan")} if act == "parameters" else {}
        final = act == "with_last" and index == len(values) - 1
        yield Response(number, outputs(value, said), parameters=parameters, final=final)
    if act == "error_last":
        yield Response(number, error=RequestError("late", Code.UNAVAILABLE), final=False)
    if act != "with_last":
        yield Response(number, void=True)


def outputs(value: int, said: Any) -> list[Tensor]:
    """The outputs of one response."""
    act = said.get("act", "")
    if "bytes" in said:
        text = b"x" * int(said["bytes"])
        return [Tensor("OUT", BY_WIRE_NAME["BYTES"], (1,), len(text).to_bytes(4, "little") + text)]
    if act == "text":
        texts = b"".join(len(text).to_bytes(4, "little") + text for text in (b"\xff", "\u00e9".encode()))
        return [Tensor("OUT", BY_WIRE_NAME["BYTES"], (2,), texts)]
    if act == "half":
        return [Tensor("OUT", BY_WIRE_NAME["FP16"], (1,), b"\x00\x3c")]
    if act == "misfit":
        return [Tensor("OUT", BY_WIRE_NAME["INT32"], (3,), b"\x00\x00\x00\x00")]
    if act == "nothing":
        return []
    seen = ",".join(f"{name}={said[name]!r}" for name in said).encode()
    return [
        Tensor("OUT", BY_WIRE_NAME["INT32"], (1,), value.to_bytes(4, "little", signed=True)),
        *(
            [Tensor("SEEN", BY_WIRE_NAME["BYTES"], (1,), len(seen).to_bytes(4, "little") + seen)]
            if act
            else []
        ),
    ]


class Worker:
    """Runs requests on a thread, and sends each response as it comes."""

    inline = helps_itself = False

    def __init__(self, name: str) -> None:
        self.name = name
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def start(self, loop: Any, supervisor: Any, sink: Any) -> None:
        self._thread = threading.Thread(target=self._serve, args=(loop, supervisor, sink), daemon=True)
        self._thread.start()

    def submit(self, batch: Any) -> None:
        self._jobs.put(batch)

    def run_here(self, tickets: Any, rows: int) -> Outcome:
        raise AssertionError("no warm-up is configured")

    def busy(self) -> bool:
        return False

    def stop(self) -> None:
        self._jobs.put(None)

    def gone(self) -> bool:
        return not self._thread.is_alive()

    def check(self) -> None:
        return None

    def _serve(self, loop: Any, supervisor: Any, sink: Any) -> None:
        while (batch := self._jobs.get()) is not None:
            start = time.monotonic_ns()
            for ticket in batch.tickets:
                for response in responses(ticket):
                    loop.call_soon_threadsafe(sink.respond, response)
            end = time.monotonic_ns()
            outcome = Outcome(Timing(start, start, end, end), responses=())
            loop.call_soon_threadsafe(supervisor.done, self, batch, outcome)


class Backend:
    """See ``ModelBackend``."""

    platform = ""
    default_filename = "model.txt"
    default_count = 1

    def complete(self, config: Any, path: Path) -> None:
        pass

    def configure(self, own: Any, shared: Any) -> None:
        """There are no settings."""
        assert not own

    def uses_gpus(self) -> bool:
        """It runs on the processor."""
        return False

    def worker(self, opening: Any) -> Worker:
        return Worker(opening.name)
