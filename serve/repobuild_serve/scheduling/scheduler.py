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
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.scheduling.forming import Batch
from repobuild_serve.scheduling.timer import DeadlineTimer
from repobuild_serve.scheduling.workers import Worker


class Former(Protocol):
    """What the scheduler needs of a queue: ``BatchFormer`` and ``DirectFormer`` have it."""

    def __len__(self) -> int: ...
    def pending(self) -> int: ...
    def full(self) -> bool: ...
    def enqueue(self, ticket: Ticket) -> bool: ...
    def expire(self, now: int) -> list[Ticket]: ...
    def form(self, now: int, idle: int) -> int | None: ...
    def take(self, now: int) -> Batch | None: ...
    def drain(self) -> list[Ticket]: ...


class DirectFormer:
    """The queue of a model without ``dynamic_batching``: one request is one execution, first come first served."""

    def __init__(self) -> None:
        self._queue: deque[Ticket] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def pending(self) -> int:
        """See ``BatchFormer.pending``."""
        return len(self._queue)

    def full(self) -> bool:
        """Never: only ``dynamic_batching`` has a queue limit of its own."""
        return False

    def enqueue(self, ticket: Ticket) -> bool:
        """See ``BatchFormer.enqueue``."""
        self._queue.append(ticket)
        return True

    def expire(self, now: int) -> list[Ticket]:
        """Nothing expires: only ``dynamic_batching`` has time-outs."""
        return []

    def form(self, now: int, idle: int) -> int | None:
        """Nothing to wait for."""
        return None

    def take(self, now: int) -> Batch | None:
        """See ``BatchFormer.take``."""
        if not self._queue:
            return None
        ticket = self._queue.popleft()
        return Batch([ticket], ticket.rows, open=False)

    def drain(self) -> list[Ticket]:
        """See ``BatchFormer.drain``."""
        left = list(self._queue)
        self._queue.clear()
        return left


class Scheduler:
    """Runs the requests of one model version. Every method is called on the loop's thread.

    Args:
        loop: The event loop.
        former: Queue and batching rules.
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
        preserve_ordering: bool = False,
    ) -> None:
        self._former = former
        self._workers = workers
        self._idle = list(workers)
        self._statistics = statistics
        self._sink = sink
        self._timer = DeadlineTimer(loop, self._pump)
        self._stopping = False
        self._order: deque[Batch] | None = deque() if preserve_ordering else None
        self._finished: dict[int, tuple[Batch, Outcome]] = {}
        for worker in workers:
            worker.start(loop, self._done)

    def submit(self, ticket: Ticket) -> None:
        """Queue a request; its answer comes through the sink, never before this call returned.

        Raises:
            RequestError: The queue is full, or the model is stopping.
        """
        former = self._former
        if self._stopping:
            raise RequestError(
                "Server is stopping, scheduler for model has stopped accepting new inference requests",
                Code.UNAVAILABLE,
                tagged=True,
            )
        if former.full():
            raise RequestError("Exceeds maximum queue size", Code.UNAVAILABLE, tagged=True)
        if former.enqueue(ticket):
            self._pump()

    def pending(self) -> int:
        """Requests that no instance has begun."""
        return self._former.pending()

    def busy(self) -> bool:
        """Whether any request waits or runs."""
        return len(self._idle) < len(self._workers) or self.pending() > 0

    def refuse_new(self) -> None:
        """Take no further requests; those that wait are still run."""
        self._stopping = True

    def close(self) -> None:
        """Stop the threads and answer whatever still waits with an error."""
        self._stopping = True
        self._timer.close()
        left = self._former.drain()
        if left:
            error = RequestError("Server is stopping", Code.UNAVAILABLE)
            self._sink(Answer([t.number for t in left], [t.rows for t in left], error=error))
        for worker in self._workers:
            worker.stop()

    def _pump(self) -> None:
        former, idle = self._former, self._idle
        now = time.monotonic_ns()
        expired = former.expire(now)
        wake = former.form(now, len(idle))
        while idle and (batch := former.take(now)) is not None:
            if self._order is not None:
                self._order.append(batch)
            idle.pop().submit(batch)
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
        self._idle.append(worker)
        if not self._stopping or len(self._former):
            self._pump()
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
