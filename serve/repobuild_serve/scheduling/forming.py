"""Which waiting requests become a batch, and when (Triton contract, forming a batch).

Pure bookkeeping: no clock, no loop, no threads. Every method is told the time, in nanoseconds.

A batch that was formed but not yet picked up by an instance is *open* while it may still grow; the contract
calls it the open payload.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain

from repobuild_serve.config.settings import BatchingPolicy
from repobuild_serve.core.ticket import Ticket


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
    """

    def __init__(self, policy: BatchingPolicy, instances: int) -> None:
        self.ready: deque[Batch] = deque()
        self.bounded = policy.queue.max_size > 0
        self._timeouts = policy.queue.timeout_ns > 0
        self._policy = policy
        self._sizes = frozenset(policy.preferred)
        self._largest_preferred = policy.preferred[-1]
        queue = policy.queue
        self._prefetch = (
            2 * instances if not (queue.timeout_ns or queue.allow_override or queue.max_size) else 0
        )
        self._fresh: deque[Ticket] = deque()
        self._expired: deque[Ticket] = deque()
        self._queued_rows = 0
        self._wake_rows = 1
        self._slots = True
        self._deadlines: list[tuple[int, int, Ticket]] = []
        self._timed: set[int] = set()

    def __len__(self) -> int:
        """Requests that wait to be put into a batch."""
        return len(self._fresh) + len(self._expired)

    def pending(self) -> int:
        """Requests that wait in the queue or in a batch that no instance has picked up."""
        return len(self) + sum(len(batch.tickets) for batch in self.ready)

    def full(self) -> bool:
        """Whether the queue policy allows no further request."""
        return self.bounded and len(self) >= self._policy.queue.max_size

    def enqueue(self, ticket: Ticket) -> bool:
        """Append a request.

        Returns:
            Whether ``form`` must be called now, because something may have become possible.
        """
        fresh = self._fresh
        differs = bool(fresh) and fresh[-1].key != ticket.key
        fresh.append(ticket)
        self._queued_rows += ticket.rows
        if self._timeouts:
            deadline = self._deadline(ticket)
            self._timed.add(ticket.number)
            heappush(self._deadlines, (deadline, ticket.number, ticket))
            if self._deadlines[0][1] == ticket.number:
                return True
        return self._slots and (differs or self._queued_rows >= self._wake_rows)

    def expire(self, now: int) -> list[Ticket]:
        """Act on queue time-outs that have passed.

        Returns:
            Requests to reject. Under the DELAY action expired requests move behind the fresh ones instead.
        """
        rejected: list[Ticket] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, number, ticket = heappop(self._deadlines)
            if number not in self._timed:
                continue
            self._timed.discard(number)
            self._fresh.remove(ticket)
            if self._policy.queue.delay_expired:
                self._expired.append(ticket)
            else:
                self._queued_rows -= ticket.rows
                rejected.append(ticket)
        return rejected

    def form(self, now: int, idle: int) -> int | None:
        """Form every batch that is due, into ``ready``.

        Args:
            now: Current time.
            idle: Instances without work.

        Returns:
            When to call ``expire`` and ``form`` again at the latest; None if only a new request or a free
            instance can change something.
        """
        due: int | None = None
        self._slots = self._may_form(idle)
        while self._slots and len(self):
            due = self._step(now, idle)
            if due is not None:
                break
            self._slots = self._may_form(idle)
        if not len(self):
            self._wake_rows = 1
        nearest = self._nearest_deadline()
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

    def drain(self) -> list[Ticket]:
        """Take out every request that no instance has picked up."""
        left = [ticket for batch in self.ready for ticket in batch.tickets]
        left += chain(self._fresh, self._expired)
        self.ready.clear()
        self._fresh.clear()
        self._expired.clear()
        self._timed.clear()
        self._queued_rows = 0
        return left

    def _may_form(self, idle: int) -> bool:
        # A ready batch that an idle instance is about to take does not wait.
        return len(self.ready) < idle + self._prefetch

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
        for ticket in self._line():
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

    def _line(self) -> Iterator[Ticket]:
        return iter(self._fresh) if not self._expired else chain(self._fresh, self._expired)

    def _dispatch(self, target: Batch | None, count: int, *, closed: bool) -> None:
        if target is None:
            target = Batch()
            self.ready.append(target)
        fresh, timed = self._fresh, self._timed
        rows = 0
        for _ in range(count):
            ticket = fresh.popleft() if fresh else self._expired.popleft()
            rows += ticket.rows
            target.tickets.append(ticket)
            if timed:
                timed.discard(ticket.number)
        target.key = target.tickets[0].key
        target.rows += rows
        self._queued_rows -= rows
        self._wake_rows = 1
        if closed:
            target.open = False

    def _next_preferred(self, rows: int) -> int:
        preferred = self._policy.preferred
        return preferred[min(bisect_right(preferred, rows), len(preferred) - 1)]

    def _deadline(self, ticket: Ticket) -> int:
        queue = self._policy.queue
        timeout = queue.timeout_ns
        if queue.allow_override and 0 < ticket.timeout_ns < timeout:
            timeout = ticket.timeout_ns
        return ticket.arrived + timeout

    def _nearest_deadline(self) -> int | None:
        deadlines = self._deadlines
        while deadlines and deadlines[0][1] not in self._timed:
            heappop(deadlines)
        return deadlines[0][0] if deadlines else None
