"""How many bytes of request bodies the server holds at a time, over all connections and models."""

from __future__ import annotations


class Budget:
    """A bound on held bytes.

    Attributes:
        limit: Most bytes that may be held.
        held: Bytes held now.
    """

    __slots__ = ("held", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def take(self, size: int) -> bool:
        """Hold ``size`` more bytes; False, and nothing held, if that is too many."""
        held = self.held + size
        if held > self.limit:
            return False
        self.held = held
        return True

    def give(self, size: int) -> None:
        """Let go of bytes taken before."""
        self.held -= size


BUSY = "the server holds too many request bytes, try again later"
"""What a client is told whose request does not fit."""
