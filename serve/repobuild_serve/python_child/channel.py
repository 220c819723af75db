"""A socket to the server, as threads of the child use it."""

from __future__ import annotations

import socket
import threading
from typing import Any, List, Optional, Sequence, Tuple

from repobuild_serve.python_child.frames import PRELUDE, encode, lead_size, read_lead, split

Frame = Tuple[Any, List[memoryview]]
_PIECE = 1 << 16


class Channel:
    """Sends from any thread, receives from one.

    Args:
        connection: The socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        self._rest = b""

    def send(self, head: Any, buffers: Sequence[Any] = ()) -> None:
        """Send a frame.

        Raises:
            OSError: The server is gone.
        """
        pieces = encode(head, buffers)
        with self._sending:
            if sum(len(piece) for piece in pieces) <= _PIECE:
                self._socket.sendall(b"".join(pieces))
                return
            for piece in pieces:
                self._socket.sendall(piece)

    def close(self) -> None:
        """Close this process's end."""
        self._socket.close()

    def receive(self) -> Optional[Frame]:
        """Wait for a frame; None if the server has closed the socket."""
        data = self._at_least(self._rest, PRELUDE.size)
        if data is None:
            return None
        prelude = PRELUDE.unpack_from(data)
        lead = lead_size(prelude)
        data = self._at_least(data, lead)
        if data is None:
            return None
        head, sizes = read_lead(data, 0, prelude)
        # Of its own, and writable: arrays of the model lie in it.
        body = bytearray(prelude[2])
        have = min(len(data) - lead, len(body))
        body[:have] = data[lead : lead + have]
        self._rest = data[lead + have :]
        view = memoryview(body)
        while have < len(body):
            count = self._socket.recv_into(view[have:])
            if not count:
                return None
            have += count
        return head, split(view, sizes)

    def _at_least(self, data: bytes, size: int) -> Optional[bytes]:
        while len(data) < size:
            try:
                more = self._socket.recv(max(_PIECE, size - len(data)))
            except ConnectionResetError:
                return None
            if not more:
                return None
            data += more
        return data
