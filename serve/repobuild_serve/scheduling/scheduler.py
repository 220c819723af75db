"""Between the queue of a model and its instances: the loop-side glue around the batch former."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from repobuild_serve.core.execution import Outcome
from repobuild_serve.core.statistics import Statistics
from repobuild_serve.core.ticket import Answer, Sink, Ticket
from repobuild_serve.errors import Code, RequestError, queue_full
from repobuild_serve.scheduling.forming import Batch
from repobuild_serve.scheduling.short_runs import ShortRuns
from repobuild_serve.scheduling.timer import DeadlineTimer
from repobuild_serve.scheduling.workers import Worker


class Former(Protocol):
    """The queue of a model and the rule by which batches are formed from it.

    Attributes:
        bounded: Whether the queue can be full.
    """

    bounded: bool

    def __len__(self) -> int:
        """Requests that wait to be put into a batch."""
        ...

    def pending(self) -> int:
        """Requests that no instance has picked up."""
        ...

    def full(self) -> bool:
        """Whether no further request may be queued."""
        ...

    def enqueue(self, ticket: Ticket) -> bool:
        """Append a request; whether ``form`` must be called."""
        ...

    def expire(self, now: int) -> list[Ticket]:
        """Take out requests whose time in the queue is over; those to reject."""
        ...

    def form(self, now: int, idle: int) -> int | None:
        """Form the batches that are due; when to call again at the latest."""
        ...

    def take(self, now: int) -> Batch | None:
        """The next batch for an idle instance."""
        ...

    def drain(self) -> list[Ticket]:
        """Take out everything."""
        ...


class Scheduler:
    """Runs the requests of one model version. Every method is called on the loop's thread.

    Args:
        loop: The event loop.
        former: Queue and batching rules.
        fixed_size: Whether every row of the model's inputs has the same size in bytes.
        workers: The instances.
        statistics: Counters to keep.
        sink: Where answers go.
        preserve_ordering: Whether answers leave in the order in which their batches were formed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        former: Former,
        workers: Sequence[Worker],
        statistics: Statistics,
        sink: Sink,
        *,
        fixed_size: bool = False,
        preserve_ordering: bool = False,
    ) -> None:
        self._loop = loop
        self._former = former
        self._workers = workers
        self._idle = list(workers)
        self._statistics = statistics
        self._sink = sink
        self._timer = DeadlineTimer(loop, self._pump)
        self._short = ShortRuns(fixed_size=fixed_size)
        self._bounded = former.bounded
        self._turn_due = False
        self._closed = False
        self._order: deque[Batch] | None = deque() if preserve_ordering else None
        self._finished: dict[int, tuple[Batch, Outcome]] = {}
        for worker in workers:
            worker.start(loop, self._done)

    def submit(self, ticket: Ticket) -> None:
        """Queue a request; its answer comes through the sink, never before this call returned.

        Raises:
            RequestError: The queue is full, or the model is stopping.
        """
        if self._closed:
            raise RequestError(
                "Server is stopping, scheduler for model has stopped accepting new inference requests",
                Code.UNAVAILABLE,
                tagged=True,
            )
        if self._bounded and self._full():
            raise queue_full()
        if self._former.enqueue(ticket) and not self._turn_due:
            # At the end of this turn of the loop, so that what arrives in the same turn may share the batch.
            self._turn_due = True
            self._loop.call_soon(self._pump)

    def pending(self) -> int:
        """Requests that no instance has begun."""
        return self._former.pending()

    def busy(self) -> bool:
        """Whether any request waits or runs."""
        return len(self._idle) < len(self._workers) or self.pending() > 0

    def close(self) -> None:
        """Stop the threads and answer whatever still waits with an error."""
        self._closed = True
        self._timer.close()
        left = self._former.drain()
        if left:
            error = RequestError("Server is stopping", Code.UNAVAILABLE)
            self._sink(Answer([t.number for t in left], [t.rows for t in left], error=error))
        for worker in self._workers:
            worker.stop()

    def _full(self) -> bool:
        """Whether the queue is full, after what an instance could take this turn has been handed out."""
        if self._former.full() and self._turn_due:
            self._pump(here=False)
        return self._former.full()

    def _pump(self, *, here: bool = True) -> None:
        """Reject what has expired, form what is due, and set instances to work.

        Args:
            here: Whether short batches may run, and be answered, within this call.
        """
        self._turn_due = False
        former, idle = self._former, self._idle
        now = time.monotonic_ns()
        expired = former.expire(now)
        wake = former.form(now, len(idle))
        while idle and (batch := former.take(now)) is not None:
            if self._order is not None:
                self._order.append(batch)
            worker = idle.pop()
            if here and self._short.allows(batch):
                outcome = worker.run_here(batch.tickets, batch.rows)
                idle.append(worker)
                self._short.ran_here(outcome.timing)
                self._finish(batch, outcome)
                now = time.monotonic_ns()
            else:
                worker.submit(batch)
            wake = former.form(now, len(idle))
        self._timer.arm(wake)
        if expired:
            self._reject(expired, now)

    def _reject(self, expired: list[Ticket], now: int) -> None:
        self._statistics.rejected(len(expired), sum(now - ticket.arrived for ticket in expired))
        self._sink(
            Answer(
                [ticket.number for ticket in expired],
                [ticket.rows for ticket in expired],
                error=RequestError("Request timeout expired", Code.UNAVAILABLE, plain=True),
            )
        )

    def _done(self, worker: Worker, batch: Batch, outcome: Outcome) -> None:
        """Called when a worker's thread has run a batch."""
        self._idle.append(worker)
        self._short.ran_elsewhere(batch, outcome.timing)
        if not self._closed:
            self._pump()
        self._finish(batch, outcome)

    def _finish(self, batch: Batch, outcome: Outcome) -> None:
        """Deliver an outcome, in order if the model asks for that."""
        if self._order is None:
            self._deliver(batch, outcome)
            return
        self._finished[id(batch)] = (batch, outcome)
        while self._order and id(self._order[0]) in self._finished:
            self._deliver(*self._finished.pop(id(self._order.popleft())))

    def _deliver(self, batch: Batch, outcome: Outcome) -> None:
        tickets, timing = batch.tickets, outcome.timing
        waited = len(tickets) * timing.start - sum([ticket.arrived for ticket in tickets])
        self._sink(
            Answer(
                [ticket.number for ticket in tickets],
                [ticket.rows for ticket in tickets],
                outcome.outputs,
                outcome.error,
            )
        )
        # After the sink: the success time of a request ends when its answer has been sent.
        if outcome.error is None:
            self._statistics.executed(batch.rows, len(tickets), waited, timing)
        else:
            self._statistics.failed_execution(batch.rows, len(tickets), waited, timing)
