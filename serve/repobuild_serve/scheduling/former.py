"""What a scheduler needs of a queue: which requests wait, and which of them are to run together next."""

from __future__ import annotations

from typing import Protocol

from repobuild_serve.core.ticket import Ticket
from repobuild_serve.scheduling.forming import Batch


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

    def full(self, ticket: Ticket) -> bool:
        """Whether no further request like this one may be queued."""
        ...

    def enqueue(self, ticket: Ticket) -> bool:
        """Append a request; whether ``form`` must be called."""
        ...

    def expire(self, now: int) -> list[Ticket]:
        """Take out requests whose time in the queue is over; those to reject."""
        ...

    def form(self, now: int, idle: int, ahead: int = 0) -> int | None:
        """Form the batches that are due; when to call again at the latest.

        Args:
            now: Current time.
            idle: Instances without work.
            ahead: Batches that were taken for instances before they are idle.
        """
        ...

    def take(self, now: int) -> Batch | None:
        """The next batch for an idle instance."""
        ...

    def take_ahead(self) -> Batch | None:
        """The next batch, if nothing can change it any more."""
        ...

    def drain(self) -> list[Ticket]:
        """Take out everything."""
        ...

    def resize(self, instances: int) -> None:
        """Learn that there is another number of instances now."""
        ...
