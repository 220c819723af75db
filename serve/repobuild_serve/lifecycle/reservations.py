"""Which models are being changed, so that no two operations change the same one at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager


class Reservations:
    """Names that one task at a time may hold.

    A task takes all it needs at once, so that none waits for ever.
    """

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def hold(self, names: AbstractSet[str]) -> AsyncIterator[None]:
        """Hold ``names``, once nobody else holds any of them."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._held.isdisjoint(names))
            self._held |= names
        try:
            yield
        finally:
            # No await before the names are free: a cancelled task must not keep them.
            self._held -= names
            async with self._changed:
                self._changed.notify_all()
