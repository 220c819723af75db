"""What a store does; the cache, publishing, pulling and serving from a URL share it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class KeyTaken(Exception):
    """Raised by ``put_if_absent`` when the key has an object already."""


class Store(Protocol):
    """Objects under keys such as ``objects/ab/cdef``: parts of letters, digits, ``.``, ``_`` and ``-``."""

    def get(self, key: str) -> bytes:
        """An object's bytes.

        Raises:
            KeyError: There is none.
            OSError: The store cannot be reached or read.
        """

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Write a new object; nobody ever sees a part of it.

        Raises:
            KeyTaken: The key has an object, which stays as it is.
            ValueError: The key is not of the form above.
            OSError: The store cannot be reached or written.
        """

    def list(self, prefix: str) -> Iterator[str]:
        """The keys that begin with a prefix, sorted."""
