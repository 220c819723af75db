"""Between the queue of a model and its instances: the loop-side glue around the batch former."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence

from repobuild_serve.core.execution import Outcome
from repobuild_serve.core.readiness import Readiness
from repobuild_serve.core.statistics import Statistics, Timing
from repobuild_serve.core.ticket import Sink, Ticket
from repobuild_serve.errors import Code, RequestError, queue_full
from repobuild_serve.scheduling.delivery import Delivery
from repobuild_serve.scheduling.former import Former
from repobuild_serve.scheduling.forming import Batch
from repobuild_serve.scheduling.short_runs import ShortRuns
from repobuild_serve.scheduling.timer import DeadlineTimer
from repobuild_serve.scheduling.workers import Worker

_LOG = logging.getLogger(__name__)
TURN_NS = 1_000_000
"""How long batches may run on the loop's thread before the rest must wait for its next turn."""


class Scheduler:
    """Runs the requests of one model version. Every method is called on the loop's thread.

    Args:
        former: Queue and batching rules.
        workers: The instances.
        statistics: Counters to keep.
        batched: Whether shapes on the wire start with a batch dim.
        fixed_size: Whether every row of the model's inputs has the same size in bytes.
        preserve_ordering: Whether answers leave in the order in which their batches were formed.
    """

    def __init__(
        self,
        former: Former,
        workers: Sequence[Worker],
        statistics: Statistics,
        *,
        batched: bool = True,
        fixed_size: bool = False,
        preserve_ordering: bool = False,
    ) -> None:
        self._former = former
        self._workers = list(workers)
        self._idle = list(workers)
        # What the next instance to end a batch may take at once, without a turn of the loop in between.
        self._ahead: deque[Batch] = deque()
        self._leaving: list[Worker] = []
        self._lost: dict[Worker, RequestError] = {}
        self._statistics = statistics
        self._short = ShortRuns(fixed_size=fixed_size)
        self._inline = all(worker.inline for worker in workers)
        self._helping = all(worker.helps_itself for worker in workers)
        self._bounded = former.bounded
        self._turn_due = False
        self._closed = False
        self._running = 0
        self._timer: DeadlineTimer | None = None
        self._delivery = Delivery(statistics, batched=batched, preserve_ordering=preserve_ordering)

    def start(self, loop: asyncio.AbstractEventLoop, sink: Sink) -> None:
        """Start the instances.

        Args:
            loop: The event loop.
            sink: Where answers go.
        """
        self._loop = loop
        self._sink = sink
        self._delivery.start(sink)
        self._timer = DeadlineTimer(loop, self._pump)
        for worker in self._workers:
            worker.start(loop, self, sink)

    def submit(self, ticket: Ticket) -> None:
        """Queue a request; its answer comes through the sink, never before this call returned.

        Raises:
            RequestError: The queue is full, no instance can run it, or the model is stopping.
        """
        if self._closed:
            raise RequestError(
                "Server is stopping, scheduler for model has stopped accepting new inference requests",
                Code.UNAVAILABLE,
                tagged=True,
            )
        if self._lost and len(self._lost) == len(self._workers):
            self._statistics.refused()
            raise next(iter(self._lost.values()))
        if self._bounded and self._full(ticket):
            raise queue_full()
        if self._former.enqueue(ticket):
            # At the end of this turn of the loop, so that what arrives in the same turn may share the batch.
            self._pump_soon()

    def pending(self) -> int:
        """Requests that no instance has begun."""
        return self._former.pending() + sum([len(batch.tickets) for batch in list(self._ahead)])

    def busy(self) -> bool:
        """Whether any request waits or runs."""
        if self._running > 0 or self.pending() > 0:
            return True
        return any(worker.busy() for worker in (*self._workers, *self._leaving))

    def ready(self) -> bool:
        """See ``Runner.ready``: whether any instance is up."""
        return len(self._lost) < len(self._workers)

    def readiness(self) -> Readiness:
        """See ``Runner.readiness``."""
        checks = [worker.check() for worker in self._workers if worker not in self._lost]
        return Readiness(not self._lost, tuple(check for check in checks if check is not None))

    def close(self) -> None:
        """Stop the instances and answer whatever still waits with an error."""
        self._closed = True
        if self._timer is not None:
            self._timer.close()
            # The timer calls this object: without the cycle, the last reference frees both.
            self._timer = None
        self._delivery.refuse(self._drain(), RequestError("Server is stopping", Code.UNAVAILABLE))
        for worker in self._workers:
            worker.stop()

    def gone(self) -> bool:
        """Whether every instance has been released, some time after ``close``."""
        return all(worker.gone() for worker in (*self._workers, *self._leaving))

    # Resizable

    def workers(self) -> Sequence[Worker]:
        """See ``Resizable.workers``."""
        return tuple(self._workers)

    def resize(self, added: Sequence[Worker], removed: Sequence[Worker]) -> None:
        """See ``Resizable.resize``."""
        try:
            for worker in added:
                worker.start(self._loop, self, self._sink)
        except BaseException:
            for worker in added:
                worker.stop()
            raise
        self._workers += added
        self._idle += added
        self._leaving = [worker for worker in self._leaving if not worker.gone()]
        for worker in removed:
            self._workers.remove(worker)
            self._leaving.append(worker)
            if worker in self._idle:
                self._idle.remove(worker)
            self._lost.pop(worker, None)
            # A worker that runs ends after the batch at hand.
            worker.stop()
        self._inline = all(worker.inline for worker in self._workers)
        self._helping = all(worker.helps_itself for worker in self._workers)
        self._former.resize(len(self._workers))
        if added:
            self._pump()

    # Supervisor

    def next_batch(self) -> Batch | None:
        """See ``Supervisor.next_batch``."""
        try:
            return self._ahead.popleft()
        except IndexError:
            return None

    def done(self, worker: Worker, batch: Batch, outcome: Outcome, following: Batch | None = None) -> None:
        """See ``Supervisor.done``."""
        if following is None:
            self._running -= 1
            # One on its way out may be told of here after its thread has ended.
            if worker not in self._lost and worker in self._workers:
                self._idle.append(worker)
        self._short.ran_elsewhere(batch, outcome.timing)
        if not self._closed:
            self._pump()
        self._delivery.finish(batch, outcome)

    def lost(self, worker: Worker, error: RequestError) -> None:
        """See ``Supervisor.lost``."""
        if worker not in self._workers:
            return
        self._lost[worker] = error
        if worker in self._idle:
            self._idle.remove(worker)
        if not self.ready():
            left = self._drain()
            self._statistics.refused(len(left))
            self._delivery.refuse(left, error)

    def found(self, worker: Worker) -> None:
        """See ``Supervisor.found``."""
        if self._lost.pop(worker, None) is not None:
            self._idle.append(worker)
            if not self._closed:
                self._pump()

    def _full(self, ticket: Ticket) -> bool:
        """Whether the queue is full, after what an instance could take this turn has been handed out."""
        if self._former.full(ticket) and self._turn_due:
            self._pump(here=False)
        return self._former.full(ticket)

    def _pump_soon(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._pump)

    def _pump(self, *, here: bool = True) -> None:
        """Reject what has expired, form what is due, and set instances to work.

        Args:
            here: Whether short batches may run, and be answered, within this call.
        """
        self._turn_due = False
        former, idle = self._former, self._idle
        now = time.monotonic_ns()
        expired = former.expire(now)
        wake = former.form(now, len(idle), len(self._ahead))
        here = here and self._inline
        # Time passes only with batches that run here, so that one of them may always run.
        until = now + TURN_NS
        while idle and (batch := self._take(now)) is not None:
            worker = idle.pop()
            if here and self._short.allows(batch):
                outcome = worker.run_here(batch.tickets, batch.rows)
                idle.append(worker)
                self._short.ran_here(outcome.timing)
                self._delivery.finish(batch, outcome)
                now = time.monotonic_ns()
            else:
                self._hand_over(worker, batch)
            wake = former.form(now, len(idle), len(self._ahead))
            if now >= until:
                # A long queue of short batches must not keep the loop from everything else.
                self._pump_soon()
                break
        if self._helping and not idle and len(self._ahead) < len(self._workers):
            self._give_ahead()
        if self._timer is not None:
            self._timer.arm(wake)
        if expired:
            self._statistics.rejected(len(expired), sum(now - ticket.arrived for ticket in expired))
            self._delivery.refuse(
                expired, RequestError("Request timeout expired", Code.UNAVAILABLE, plain=True)
            )

    def _take(self, now: int) -> Batch | None:
        """The next batch for an idle instance."""
        batch = self.next_batch()
        if batch is None:
            batch = self._former.take(now)
            if batch is not None:
                self._delivery.expect(batch)
        return batch

    def _hand_over(self, worker: Worker, batch: Batch) -> None:
        self._running += 1
        try:
            worker.submit(batch)
        except Exception as exc:  # noqa: BLE001 - a bug in a worker must cost one batch, not the instance
            _LOG.exception("instance %s did not take a batch of %d rows", worker.name, batch.rows)
            self._running -= 1
            self._idle.append(worker)
            now = time.monotonic_ns()
            error = RequestError(
                f"Failed to process the request(s) for model '{worker.name}', message: "
                f"{type(exc).__name__}: {exc}",
                Code.INTERNAL,
                plain=True,
            )
            self._delivery.finish(batch, Outcome(Timing(now, now, now, now), error=error))

    def _give_ahead(self) -> None:
        while len(self._ahead) < len(self._workers) and (batch := self._former.take_ahead()) is not None:
            self._delivery.expect(batch)
            self._ahead.append(batch)

    def _drain(self) -> list[Ticket]:
        """Take out every request that no instance has begun."""
        left: list[Ticket] = []
        while (batch := self.next_batch()) is not None:
            left += batch.tickets
            self._delivery.forget(batch)
        return left + self._former.drain()
