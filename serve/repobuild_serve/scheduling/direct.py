"""The queue of a model without ``dynamic_batching``: one request is one execution, in order."""

from __future__ import annotations

from collections import deque

from repobuild_serve.core.ticket import Ticket
from repobuild_serve.scheduling.forming import Batch


class DirectFormer:
    """Hands out requests one by one: no limit, no time-out, no waiting (Triton contract)."""

    bounded = False

    def __init__(self) -> None:
        self._queue: deque[Ticket] = deque()

    def __len__(self) -> int:
        """Requests that wait."""
        return len(self._queue)

    def pending(self) -> int:
        """See ``Former.pending``."""
        return len(self._queue)

    def full(self, ticket: Ticket) -> bool:
        """See ``Former.full``."""
        return False

    def enqueue(self, ticket: Ticket) -> bool:
        """See ``Former.enqueue``."""
        self._queue.append(ticket)
        return True

    def expire(self, now: int) -> list[Ticket]:
        """See ``Former.expire``."""
        return []

    def form(self, now: int, idle: int, ahead: int = 0) -> int | None:
        """See ``Former.form``."""
        return None

    def take(self, now: int) -> Batch | None:
        """See ``Former.take``."""
        return self.take_ahead()

    def take_ahead(self) -> Batch | None:
        """See ``Former.take_ahead``."""
        if not self._queue:
            return None
        ticket = self._queue.popleft()
        return Batch([ticket], ticket.rows, open=False)

    def drain(self) -> list[Ticket]:
        """See ``Former.drain``."""
        left = list(self._queue)
        self._queue.clear()
        return left

    def resize(self, instances: int) -> None:
        """See ``Former.resize``."""
