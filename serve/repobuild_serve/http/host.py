"""What the connections of one listener share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repobuild_serve.http.budget import Budget
from repobuild_serve.http.exchange import Application, KnownHead
from repobuild_serve.http.limits import Limits
from repobuild_serve.http.parser import Request

if TYPE_CHECKING:
    from repobuild_serve.http.protocol import Connection

_MAX_HEADS = 1024


class Host:
    """What the connections of one listener share.

    Attributes:
        application: What answers requests.
        limits: Bounds of what clients may ask for.
        budget: Bytes of bodies that may be held, shared with other listeners.
        heads: Known headers.
        connections: Open connections.
        tick: Seconds since the start, roughly.
        stopping: Whether every answer is the last of its connection.
    """

    def __init__(self, application: Application, limits: Limits, budget: Budget) -> None:
        self.application = application
        self.limits = limits
        self.budget = budget
        self.heads: dict[bytes, KnownHead] = {}
        self.connections: set[Connection] = set()
        self.tick = 0
        self.stopping = False

    def remember(self, head: bytes, request: Request) -> None:
        """Keep what a header means, if it may be kept."""
        if self.stopping:
            return
        known = self.application.known_head(request)
        if known is not None:
            if len(self.heads) >= _MAX_HEADS:
                self.heads.clear()
            self.heads[head] = known

    def forget(self) -> None:
        """Drop what headers mean, since it may mean another model now."""
        self.heads.clear()

    def sweep(self) -> None:
        """Drop connections whose time is over; called once a second."""
        self.tick += 1
        for connection in tuple(self.connections):
            connection.check_time(self.tick)

    def stop(self) -> None:
        """Close idle connections; the others close after the answers they wait for."""
        self.stopping = True
        self.heads.clear()
        for connection in tuple(self.connections):
            connection.stop()
