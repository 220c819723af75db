"""What runs batches: the instances of a model, each on its own."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Sequence
from typing import Protocol

from repobuild_serve.backends.interface import Instance
from repobuild_serve.core.execution import Executor, Outcome
from repobuild_serve.core.readiness import Check
from repobuild_serve.core.ticket import Sink, Ticket
from repobuild_serve.errors import RequestError
from repobuild_serve.scheduling.forming import Batch


class Supervisor(Protocol):
    """Whom a worker tells how it fares; on the loop's thread."""

    def done(self, worker: Worker, batch: Batch, outcome: Outcome, following: Batch | None = None) -> None:
        """A batch has been run, and the worker can take the next one unless it is lost.

        Args:
            worker: The worker.
            batch: What it was given.
            outcome: What came of it.
            following: What the worker has taken by ``next_batch`` meanwhile, and runs now.
        """
        ...

    def next_batch(self) -> Batch | None:
        """A batch that waits for the first worker to end another, if there is one; on any thread."""
        ...

    def lost(self, worker: Worker, error: RequestError) -> None:
        """The worker can take no batch for now; ``error`` is what a request is told that nobody can run."""
        ...

    def found(self, worker: Worker) -> None:
        """A lost worker can take batches again."""
        ...


class Worker(Protocol):
    """One instance of a model, which runs one batch at a time.

    Attributes:
        name: Instance name.
        inline: Whether ``run_here`` may be called on the loop's thread.
        helps_itself: Whether it asks for the ``Supervisor.next_batch`` as soon as it has run one.
    """

    name: str
    inline: bool
    helps_itself: bool

    def run_here(self, tickets: Sequence[Ticket], rows: int) -> Outcome:
        """Run a batch and wait for it; before ``start``, or while the worker is idle and ``inline``."""
        ...

    def start(self, loop: asyncio.AbstractEventLoop, supervisor: Supervisor, sink: Sink) -> None:
        """Make ready for ``submit``; called on the loop's thread.

        Args:
            loop: The event loop.
            supervisor: Told of every batch.
            sink: For responses that come before, or after, the end of a batch.
        """
        ...

    def submit(self, batch: Batch) -> None:
        """Hand over a batch; the worker must be idle."""
        ...

    def busy(self) -> bool:
        """Whether requests of batches that are done still wait for responses."""
        ...

    def stop(self) -> None:
        """End after the batch at hand and the responses still owed, and release the instance.

        Does not wait; may be called twice.
        """
        ...

    def gone(self) -> bool:
        """Whether the instance has been released, some time after ``stop``."""
        ...

    def check(self) -> Check | None:
        """What asks whether it is ready, for an instance that can be up and not ready."""
        ...


class ThreadWorker:
    """An instance that is called on a thread of its own. A running session lets go of the interpreter lock.

    Args:
        name: Instance name.
        instance: The loaded model.
        executor: How batches are run.
    """

    inline = True
    helps_itself = True

    def __init__(self, name: str, instance: Instance, executor: Executor) -> None:
        self.name = name
        self._instance = instance
        self._executor = executor
        self._jobs: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def run_here(self, tickets: Sequence[Ticket], rows: int) -> Outcome:
        """See ``Worker.run_here``."""
        return self._executor.execute(self._instance, self.name, tickets, rows)

    def start(self, loop: asyncio.AbstractEventLoop, supervisor: Supervisor, sink: Sink) -> None:
        """See ``Worker.start``."""
        self._thread = threading.Thread(
            target=self._serve, args=(loop, supervisor), name=self.name, daemon=True
        )
        self._thread.start()

    def submit(self, batch: Batch) -> None:
        """See ``Worker.submit``."""
        self._jobs.put(batch)

    def busy(self) -> bool:
        """See ``Worker.busy``."""
        return False

    def stop(self) -> None:
        """See ``Worker.stop``."""
        if self._thread is None:
            self._instance.close()
        self._stopping = True
        self._jobs.put(None)

    def gone(self) -> bool:
        """See ``Worker.gone``."""
        return self._thread is None or not self._thread.is_alive()

    def check(self) -> Check | None:
        """See ``Worker.check``."""
        return None

    def _serve(self, loop: asyncio.AbstractEventLoop, supervisor: Supervisor) -> None:
        batch = self._jobs.get()
        while batch is not None:
            outcome = self._executor.execute(self._instance, self.name, batch.tickets, batch.rows)
            following = None if self._stopping else supervisor.next_batch()
            loop.call_soon_threadsafe(supervisor.done, self, batch, outcome, following)
            # Else a batch would be held until the next one comes.
            del batch, outcome
            batch = following if following is not None else self._jobs.get()
        self._instance.close()
