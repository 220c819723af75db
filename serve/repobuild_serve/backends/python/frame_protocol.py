"""The server's end of a socket to a child process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from repobuild_serve.python_child.frames import PRELUDE, lead_size, read_lead, split

_LOG = logging.getLogger(__name__)
_SCRATCH = 1 << 18


class FrameProtocol(asyncio.BufferedProtocol):
    """Reads frames. A large one is read straight into the memory that its tensors then lie in.

    Args:
        take: Called with the head and the buffers of each frame.
        lost: Called once the socket is closed.
    """

    def __init__(self, take: Callable[[Any, list[memoryview]], None], lost: Callable[[], None]) -> None:
        self._take = take
        self._lost = lost
        self._scratch = memoryview(bytearray(_SCRATCH))
        self._filled = 0
        self._head: Any = None
        self._sizes: tuple[int, ...] = ()
        self._body: memoryview | None = None
        self._have = 0
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.BaseProtocol``."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.BaseProtocol``."""
        self._lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        """See ``asyncio.BufferedProtocol``."""
        return self._scratch[self._filled :] if self._body is None else self._body[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        """See ``asyncio.BufferedProtocol``."""
        if self._body is not None:
            self._have += nbytes
            if self._have == len(self._body):
                body, self._body = self._body, None
                self._take(self._head, split(body, self._sizes))
            return
        self._filled += nbytes
        try:
            self._read()
        except (ValueError, MemoryError, OverflowError):
            # The child wrote something else than frames into its socket.
            _LOG.exception("a python child sent something that cannot be read")
            assert self._transport is not None
            self._transport.close()

    def _read(self) -> None:
        data, position = self._scratch, 0
        while self._filled - position >= PRELUDE.size:
            prelude = PRELUDE.unpack_from(data, position)
            lead, size = lead_size(prelude), prelude[2]
            if lead > self._filled - position:
                self._make_room(position, lead)
                return
            head, sizes = read_lead(data, position, prelude)
            position += lead
            body = memoryview(bytearray(size))
            have = min(size, self._filled - position)
            body[:have] = data[position : position + have]
            position += have
            if have < size:
                self._head, self._sizes, self._body, self._have = head, sizes, body, have
                self._filled = 0
                return
            self._take(head, split(body, sizes))
        self._make_room(position, 0)

    def _make_room(self, position: int, lead: int) -> None:
        """Move what is left to the front of a scratch buffer that ``lead`` bytes fit into."""
        left = bytes(self._scratch[position : self._filled])
        if lead > len(self._scratch):
            self._scratch = memoryview(bytearray(lead))
        self._scratch[: len(left)] = left
        self._filled = len(left)
