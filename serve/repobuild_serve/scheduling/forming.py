"""Which waiting requests become a batch, and when (Triton contract, forming a batch).

Pure bookkeeping: no clock, no loop, no threads. Every method is told the time, in nanoseconds.

A batch that was formed but not yet picked up by an instance is *open* while it may still grow; the contract
calls it the open payload.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from repobuild_serve.config.settings import BatchingPolicy
from repobuild_serve.core.ticket import Ticket
from repobuild_serve.scheduling.queue import RequestQueue


@dataclass(slots=True)
class Batch:
    """Requests that run together.

    Attributes:
        tickets: In the order in which they were taken from the queue.
        rows: Sum of their rows.
        key: What they have in common (``Ticket.key``).
        open: Whether further requests may join.
    """

    tickets: list[Ticket] = field(default_factory=list)
    rows: int = 0
    key: Hashable = None
    open: bool = True

    def oldest(self) -> int:
        """Arrival of the request that has waited longest."""
        return min(ticket.arrived for ticket in self.tickets)


@dataclass(slots=True)
class _Walk:
    """What one walk along the queue found."""

    count: int = 0
    rows: int = 0
    oldest: int = 0
    best_count: int = 0
    closed: bool = False
    send_now: bool = False


class BatchFormer:
    """The queue of one model and the batches formed from it.

    Args:
        policy: Batching settings.
        instances: Number of instances of the model.
        hold: Requests that must wait before the first batch is formed; 0 holds nothing back.
    """

    def __init__(self, policy: BatchingPolicy, instances: int, *, hold: int = 0) -> None:
        self.ready: deque[Batch] = deque()
        self._queue = RequestQueue(policy)
        self.bounded = self._queue.bounded
        self._policy = policy
        self._sizes = frozenset(policy.preferred)
        self._largest_preferred = policy.preferred[-1]
        plain = self._queue.plain and not policy.levels and not self.bounded
        self._prefetches = plain and not policy.queue.allow_override
        self.resize(instances)
        self._wake_rows = 1
        self._slots = True
        self._hold = hold

    def __len__(self) -> int:
        """Requests that wait to be put into a batch."""
        return len(self._queue)

    def pending(self) -> int:
        """Requests that wait in the queue or in a batch that no instance has picked up."""
        return len(self) + sum(len(batch.tickets) for batch in self.ready)

    def full(self, ticket: Ticket) -> bool:
        """Whether the queue policy allows no further request like this one."""
        return self._queue.full(ticket)

    def enqueue(self, ticket: Ticket) -> bool:
        """Append a request.

        Returns:
            Whether ``form`` must be called now, because something may have become possible.
        """
        queue = self._queue
        last = queue.last()
        if queue.push(ticket):
            return True
        if self._hold:
            return len(queue) >= self._hold
        if not self._slots:
            return False
        if not queue.plain:
            # It may have come in at the front, or in the middle.
            return True
        return queue.rows >= self._wake_rows or (last is not None and last.key != ticket.key)

    def expire(self, now: int) -> list[Ticket]:
        """Act on queue time-outs that have passed.

        Returns:
            Requests to reject. Under the DELAY action expired requests move behind the fresh ones instead.
        """
        return self._queue.expire(now)

    def form(self, now: int, idle: int, ahead: int = 0) -> int | None:
        """Form every batch that is due, into ``ready``.

        Args:
            now: Current time.
            idle: Instances without work.
            ahead: Batches that were taken by ``take_ahead`` and not begun yet.

        Returns:
            When to call ``expire`` and ``form`` again at the latest; None if only a new request or a free
            instance can change something.
        """
        due: int | None = None
        self._slots = self._may_form(idle, ahead)
        while self._slots and len(self):
            due = self._step(now, idle)
            if due is not None:
                break
            self._slots = self._may_form(idle, ahead)
        if not len(self):
            self._wake_rows = 1
        nearest = self._queue.nearest_deadline()
        if nearest is None:
            return due
        return nearest if due is None else min(due, nearest)

    def take(self, now: int) -> Batch | None:
        """Hand the next batch to an instance, merged with open ones that are late (contract rule 7)."""
        if not self.ready:
            return None
        batch = self.ready.popleft()
        if self._policy.delay_ns and batch.open:
            while self.ready:
                other = self.ready[0]
                late = now - other.oldest() >= self._policy.delay_ns
                if not (other.open and late and other.key == batch.key):
                    break
                if batch.rows + other.rows > self._policy.max_batch_size:
                    break
                batch.tickets += other.tickets
                batch.rows += other.rows
                self.ready.popleft()
        batch.open = False
        return batch

    def take_ahead(self) -> Batch | None:
        """Hand out the next batch before an instance is idle, if nothing can join it any more."""
        if not self.ready or (self.ready[0].open and self.ready[0].rows < self._policy.max_batch_size):
            return None
        batch = self.ready.popleft()
        batch.open = False
        return batch

    def drain(self) -> list[Ticket]:
        """Take out every request that no instance has picked up."""
        left = [ticket for batch in self.ready for ticket in batch.tickets]
        self.ready.clear()
        return left + self._queue.drain()

    def resize(self, instances: int) -> None:
        """Learn that there is another number of instances now."""
        self._prefetch = 2 * instances if self._prefetches else 0

    def _may_form(self, idle: int, ahead: int) -> bool:
        if len(self) < self._hold:
            return False
        self._hold = 0
        # A ready batch that an idle instance is about to take does not wait.
        return len(self.ready) + ahead < idle + self._prefetch

    def _step(self, now: int, idle: int) -> int | None:
        """Form at most one batch; the time to wait for if there is reason to wait."""
        policy = self._policy
        target = self.ready[-1] if len(self.ready) > idle and self.ready[-1].open else None
        taken = target.rows if target else 0
        walk = self._walk(target)
        late = bool(policy.delay_ns) and now - walk.oldest >= policy.delay_ns
        if walk.best_count and not late:
            self._dispatch(target, walk.best_count, closed=walk.closed or not policy.delay_ns)
        elif walk.closed and not walk.count:
            # Nothing fits the open batch any more: close it and start the next one.
            assert target is not None
            target.open = False
        elif walk.send_now or taken + walk.rows >= self._largest_preferred:
            self._dispatch(target, walk.count, closed=True)
        elif late or not policy.delay_ns or (target is not None and taken not in self._sizes):
            self._dispatch(target, walk.count, closed=walk.closed)
        else:
            self._wake_rows = self._next_preferred(taken + walk.rows) - taken
            return walk.oldest + policy.delay_ns
        return None

    def _walk(self, target: Batch | None) -> _Walk:
        policy, sizes = self._policy, self._sizes
        taken = target.rows if target else 0
        walk = _Walk()
        key: Hashable = target.key if target else None
        for ticket in self._queue:
            if taken + walk.rows:
                rows = taken + walk.rows + ticket.rows
                if rows > self._largest_preferred and not walk.best_count:
                    walk.best_count, walk.closed = walk.count, True
                if rows > policy.max_batch_size or ticket.key != key:
                    walk.send_now = walk.closed = True
                    break
            else:
                key = ticket.key
            if not walk.count or ticket.arrived < walk.oldest:
                walk.oldest = ticket.arrived
            walk.count += 1
            walk.rows += ticket.rows
            if taken + walk.rows in sizes:
                walk.best_count = walk.count
        return walk

    def _dispatch(self, target: Batch | None, count: int, *, closed: bool) -> None:
        if target is None:
            target = Batch()
            self.ready.append(target)
        tickets = self._queue.take(count)
        target.tickets += tickets
        target.key = target.tickets[0].key
        target.rows += sum([ticket.rows for ticket in tickets])
        self._wake_rows = 1
        if closed:
            target.open = False

    def _next_preferred(self, rows: int) -> int:
        preferred = self._policy.preferred
        return preferred[min(bisect_right(preferred, rows), len(preferred) - 1)]
