"""The requests of one model that wait to be put into a batch, by priority (Triton contract, queue policy).

Pure bookkeeping, like ``scheduling.forming``: every method is told the time, in nanoseconds.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import chain

from repobuild_serve.config.settings import BatchingPolicy, QueuePolicy
from repobuild_serve.core.ticket import Ticket

_SPARE_DEADLINES = 64


class _Level:
    """The requests of one priority: those whose time-out expired wait behind the fresh ones.

    Fresh ones are kept by number, so that each may leave from wherever it waits at the same small cost.
    """

    __slots__ = ("delayed", "fresh", "policy")

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy = policy
        self.fresh: OrderedDict[int, Ticket] = OrderedDict()
        self.delayed: deque[Ticket] = deque()

    def __len__(self) -> int:
        return len(self.fresh) + len(self.delayed)


class RequestQueue:
    """The queue of one model.

    Args:
        policy: Batching settings.

    Attributes:
        bounded: Whether it can be full.
        plain: Whether requests only ever leave at the front, in the order in which they came.
        rows: Sum of the rows of all that wait.
    """

    def __init__(self, policy: BatchingPolicy) -> None:
        self._levels = tuple(map(_Level, policy.queues()))
        self._default = policy.default_level - 1 if policy.levels else 0
        self._many = len(self._levels) > 1
        self._timeouts = any(level.policy.timeout_ns for level in self._levels)
        # Entries of requests that have left stay until they come to the front or are too many.
        self._deadlines: list[tuple[int, int]] = []
        self._timed: dict[int, tuple[_Level, Ticket]] = {}
        # The whole queue, if it is plain.
        self._first: deque[Ticket] = deque()
        self.bounded = any(level.policy.max_size for level in self._levels)
        self.plain = not self._many and not self._timeouts
        self.rows = 0

    def __len__(self) -> int:
        """Requests that wait."""
        return len(self._first) if self.plain else sum(map(len, self._levels))

    def __iter__(self) -> Iterator[Ticket]:
        """The requests in the order in which they would leave."""
        if self.plain:
            return iter(self._first)
        return chain.from_iterable(chain(level.fresh.values(), level.delayed) for level in self._levels)

    def full(self, ticket: Ticket) -> bool:
        """Whether the policy of its level allows no further request like this one."""
        level = self._level(ticket)
        return 0 < level.policy.max_size <= (len(self._first) if self.plain else len(level))

    def last(self) -> Ticket | None:
        """The fresh request of the lowest priority that came last."""
        if self.plain:
            return self._first[-1] if self._first else None
        level = next((level for level in reversed(self._levels) if level.fresh), None)
        return None if level is None else level.fresh[next(reversed(level.fresh))]

    def push(self, ticket: Ticket) -> bool:
        """Append a request.

        Returns:
            Whether its time-out is now the nearest one.
        """
        self.rows += ticket.rows
        if self.plain:
            self._first.append(ticket)
            return False
        level = self._level(ticket)
        level.fresh[ticket.number] = ticket
        timeout = level.policy.timeout_ns
        if not timeout:
            return False
        if level.policy.allow_override and 0 < ticket.timeout_ns < timeout:
            timeout = ticket.timeout_ns
        self._timed[ticket.number] = level, ticket
        if len(self._deadlines) > _SPARE_DEADLINES + 2 * len(self._timed):
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._timed]
            heapify(self._deadlines)
        heappush(self._deadlines, (ticket.arrived + timeout, ticket.number))
        return self._deadlines[0][1] == ticket.number

    def take(self, count: int) -> list[Ticket]:
        """Remove the first ``count`` requests."""
        if self.plain:
            popleft = self._first.popleft
            taken = [popleft() for _ in range(count)]
        else:
            taken = [self._pop() for _ in range(count)]
            for ticket in taken:
                self._timed.pop(ticket.number, None)
        self.rows -= sum([ticket.rows for ticket in taken])
        return taken

    def expire(self, now: int) -> list[Ticket]:
        """Act on time-outs that have passed.

        Returns:
            Requests to reject. Under the DELAY action expired requests move behind the fresh ones instead.
        """
        rejected: list[Ticket] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, number = heappop(self._deadlines)
            timed = self._timed.pop(number, None)
            if timed is None:
                continue
            level, ticket = timed
            del level.fresh[number]
            if level.policy.delay_expired:
                level.delayed.append(ticket)
            else:
                self.rows -= ticket.rows
                rejected.append(ticket)
        return rejected

    def nearest_deadline(self) -> int | None:
        """When the next time-out expires."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][1] not in self._timed:
            heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def drain(self) -> list[Ticket]:
        """Remove everything."""
        return self.take(len(self))

    def _level(self, ticket: Ticket) -> _Level:
        wanted = ticket.priority - 1
        return self._levels[wanted if 0 <= wanted < len(self._levels) and self._many else self._default]

    def _pop(self) -> Ticket:
        for level in self._levels:
            if level.fresh:
                return level.fresh.popitem(last=False)[1]
            if level.delayed:
                return level.delayed.popleft()
        raise IndexError("the queue is empty")
