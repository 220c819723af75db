"""Threads that run batches, one per instance. A running session lets go of the interpreter lock."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence

from repobuild_serve.backends.interface import Instance
from repobuild_serve.core.execution import Executor, Outcome
from repobuild_serve.core.ticket import Ticket
from repobuild_serve.scheduling.forming import Batch

Done = Callable[["Worker", Batch, Outcome], None]


class Worker:
    """One instance and its thread.

    Args:
        name: Instance name.
        instance: The loaded model.
        executor: How batches are run.
    """

    def __init__(self, name: str, instance: Instance, executor: Executor) -> None:
        self.name = name
        self._instance = instance
        self._executor = executor
        self._jobs: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def run_here(self, tickets: Sequence[Ticket], rows: int) -> Outcome:
        """Run a batch on the calling thread; the worker must be idle."""
        return self._executor.execute(self._instance, self.name, tickets, rows)

    def start(self, loop: asyncio.AbstractEventLoop, done: Done) -> None:
        """Start the thread; ``done`` is called on the loop's thread after each batch."""
        self._thread = threading.Thread(target=self._serve, args=(loop, done), name=self.name, daemon=True)
        self._thread.start()

    def submit(self, batch: Batch) -> None:
        """Hand over a batch; the worker must be idle."""
        self._jobs.put(batch)

    def stop(self) -> None:
        """End the thread after the batch at hand, and close the instance. Does not wait."""
        if self._thread is None:
            self._instance.close()
        self._jobs.put(None)

    def _serve(self, loop: asyncio.AbstractEventLoop, done: Done) -> None:
        while (batch := self._jobs.get()) is not None:
            outcome = self._executor.execute(self._instance, self.name, batch.tickets, batch.rows)
            loop.call_soon_threadsafe(done, self, batch, outcome)
        self._instance.close()
