"""A stream of bytes out of a hostile file, which decides neither how much is read nor how much is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

PIECE_BYTES = 1 << 18


class StreamTooLarge(Exception):
    """Raised by a :class:`CountingStream` past its limit."""


class StreamEnded(Exception):
    """Raised by a :class:`CountingStream` that holds fewer bytes than were asked for."""


class StreamUnreadable(Exception):
    """Raised by the stream of a compression that is known but is not read here."""


class CountingStream:
    """A buffered read-only stream that refuses to take more than a limit from the stream under it.

    Bytes come from below in pieces of at most 256 KiB, and what is skipped is dropped piece by piece, so that
    a length field in a hostile file cannot make the reader allocate more than a caller keeps.

    Args:
        inner: The stream under it; only its ``read1``, or ``read``, is used.
        limit: Bytes that may be taken from it.
    """

    def __init__(self, inner: BinaryIO, limit: int) -> None:
        self._fetch: Callable[[int], bytes] = getattr(inner, "read1", inner.read)
        self._limit = limit
        self._fetched = 0
        self._piece = b""
        self._at = 0

    def tell(self) -> int:
        """Bytes handed out or skipped so far."""
        return self._fetched - len(self._piece) + self._at

    def _fill(self) -> bool:
        """Replace the used-up piece by the next one; false at the end of the stream."""
        self._piece, self._at = self._fetch(PIECE_BYTES), 0
        self._fetched += len(self._piece)
        if self._fetched > self._limit:
            raise StreamTooLarge
        return bool(self._piece)

    def byte(self) -> int:
        """The next byte.

        Raises:
            StreamEnded: There is none.
            StreamTooLarge: The limit is passed.
        """
        if self._at == len(self._piece) and not self._fill():
            raise StreamEnded
        self._at += 1
        return self._piece[self._at - 1]

    def read(self, size: int) -> bytes:
        """Exactly ``size`` bytes, which the caller keeps: it bounds them.

        Raises:
            StreamEnded: The stream holds fewer.
            StreamTooLarge: The limit is passed.
        """
        end = self._at + size
        if end <= len(self._piece):
            taken = self._piece[self._at : end]
            self._at = end
            return taken
        pieces = []
        while size > 0:
            if self._at == len(self._piece) and not self._fill():
                raise StreamEnded
            taken = self._piece[self._at : self._at + size]
            self._at += len(taken)
            size -= len(taken)
            pieces.append(taken)
        return b"".join(pieces)

    def line(self, keep: int) -> bytes | None:
        """The bytes up to the next newline, without it; ``None`` in place of a line longer than ``keep``.

        Raises:
            StreamEnded: No newline follows.
            StreamTooLarge: The limit is passed.
        """
        kept: bytes | None = b""
        while True:
            if self._at == len(self._piece) and not self._fill():
                raise StreamEnded
            found = self._piece.find(b"\n", self._at)
            end = len(self._piece) if found < 0 else found
            if kept is not None:
                kept = None if len(kept) + end - self._at > keep else kept + self._piece[self._at : end]
            self._at = end if found < 0 else end + 1
            if found >= 0:
                return kept

    def skip(self, size: int) -> None:
        """Drop ``size`` bytes.

        Raises:
            StreamEnded: The stream holds fewer.
            StreamTooLarge: The limit is passed.
        """
        while size > 0:
            if self._at == len(self._piece) and not self._fill():
                raise StreamEnded
            step = min(size, len(self._piece) - self._at)
            self._at += step
            size -= step
