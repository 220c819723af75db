"""An answer that is sent piece by piece, while its request still runs."""

from __future__ import annotations

from repobuild_serve.http.budget import Budget
from repobuild_serve.http.exchange import Exchange
from repobuild_serve.http.replies import chunk, chunked_head

_LAST_CHUNK = b"0\r\n\r\n"


class Stream:
    """The body of a streamed answer.

    Pieces are held back while an earlier answer of the connection is not complete, or while the client reads
    too slowly. A model cannot be told to wait, so a connection with too much held back is dropped.

    Args:
        exchange: Whose answer it is.
        status: HTTP status.
        content_type: Media type of the body.
        budget: Bytes that all connections may hold.
        limit: Bytes held back at which no further piece is taken.

    Attributes:
        ended: Whether all has been said.
    """

    def __init__(
        self, exchange: Exchange, status: int, content_type: bytes, budget: Budget, limit: int
    ) -> None:
        self.ended = False
        self._exchange = exchange
        self._chunked = not exchange.http10
        self._budget = budget
        self._limit = limit
        self._head: tuple[int, bytes] | None = (status, content_type)
        self._pieces: list[bytes] = []
        self._held = 0
        self._dropped = exchange.connection.gone
        if exchange.http10:
            # Without chunks, the end of the connection is the end of the body.
            exchange.plain, exchange.close = False, True
        exchange.stream = self

    def send(self, data: bytes) -> None:
        """Send a piece; it is dropped with its connection if too much is held back already."""
        if self._dropped or not data:
            return
        if self._held >= self._limit or not self._budget.take(len(data)):
            self._exchange.connection.drop(
                f"{self._held} bytes of a streamed answer wait for a client that reads too slowly"
            )
            return
        self._held += len(data)
        self._pieces.append(chunk(data) if self._chunked else data)
        self._exchange.connection.advance()

    def end(self) -> None:
        """End the body."""
        self.ended = True
        if self._chunked:
            self._pieces.append(_LAST_CHUNK)
        if not self._dropped:
            self._exchange.connection.advance()

    # Connection

    def take(self) -> bytes:
        """What can be written now."""
        pieces = self._pieces
        if self._head is not None and (pieces or self.ended):
            status, content_type = self._head
            pieces = [
                chunked_head(status, content_type, chunked=self._chunked, close=self._exchange.close),
                *pieces,
            ]
            self._head = None
        self._pieces = []
        self._release()
        return b"".join(pieces)

    def discard(self) -> None:
        """The connection is gone: let go of what is held, and take no more."""
        self._dropped = True
        self._pieces = []
        self._release()

    def _release(self) -> None:
        self._budget.give(self._held)
        self._held = 0
