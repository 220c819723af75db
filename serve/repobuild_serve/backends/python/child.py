"""A child process and its sockets, on the server's loop."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import socket
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from repobuild_serve.backends.python.frame_protocol import FrameProtocol
from repobuild_serve.python_child.frames import encode

_LOG = logging.getLogger(__name__)
START = Path(__file__).resolve().parents[2] / "python_child" / "start.py"
"""The program that a child process runs."""
_POLL_SECONDS = 0.1
_DRAIN_SECONDS = 0.01
_SMALL = 1 << 14


class Child:
    """A running child process, in a session of its own.

    Args:
        name: Whose it is, for the log.
        take: Called with the head and buffers of each message, on the loop's thread.
        lost: Called once, on the loop's thread, when the process has ended.
    """

    def __init__(
        self, name: str, take: Callable[[Any, list[memoryview]], None], lost: Callable[[], None]
    ) -> None:
        self._name = name
        self._take = take
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._main: asyncio.Transport | None = None
        self._side: asyncio.Transport | None = None
        self._pidfd = -1
        self._connected = False
        self.ended: asyncio.Future[None] = self._loop.create_future()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    async def start(self, python: str, environment: Mapping[str, str]) -> None:
        """Start the process. On the loop's thread, for it is to end with the thread that starts it.

        Args:
            python: The interpreter.
            environment: Its environment.

        Raises:
            OSError: The interpreter cannot be run.
        """
        mine, its = zip(*(socket.socketpair() for _ in range(2)), strict=True)
        try:
            numbers = tuple(end.fileno() for end in its)
            self._process = subprocess.Popen(  # noqa: ASYNC220 - back as soon as the program runs
                [python, "-u", "-B", str(START), *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=numbers,
                env=environment,
                start_new_session=True,
            )
        except OSError:
            for end in mine:
                end.close()
            raise
        finally:
            for end in its:
                end.close()
        for end in mine:
            end.setblocking(False)
        self._watch_exit()
        self._connected = True
        main, _ = await self._loop.connect_accepted_socket(
            lambda: FrameProtocol(self._take, self._main_lost), mine[0]
        )
        side, _ = await self._loop.connect_accepted_socket(asyncio.Protocol, mine[1])
        self._main, self._side = main, side
        if self._process.returncode is not None:
            self._drain()

    def send(self, head: Any, buffers: Sequence[Any] = ()) -> None:
        """Send what its main thread is to do."""
        if self._main is not None and not self._main.is_closing():
            _write(self._main, encode(head, buffers))

    def tell(self, head: Any, buffers: Sequence[Any] = ()) -> None:
        """Send what its other threads wait for."""
        if self._side is not None and not self._side.is_closing():
            _write(self._side, encode(head, buffers))

    def kill(self) -> None:
        """End the process and whatever it started."""
        if self._process is not None and self._process.returncode is None:
            # The group's number cannot have been given away: its leader has not been waited for.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _watch_exit(self) -> None:
        assert self._process is not None
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError:
            self._loop.call_later(_POLL_SECONDS, self._poll)
            return
        self._loop.add_reader(self._pidfd, self._exited)

    def _poll(self) -> None:
        assert self._process is not None
        if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            self._loop.call_later(_POLL_SECONDS, self._poll)
            return
        self._exited()

    def _exited(self) -> None:
        assert self._process is not None
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        # What it started may still hold its end of the socket; what it sent before it ended is read first.
        self.kill()
        self._process.wait()
        if self._side is not None:
            self._side.abort()
        if self._connected:
            self._drain()
        self._gone()

    def _drain(self) -> None:
        """Close the main socket once all that the process sent is read.

        The socket may stay open for ever else: a daemon that the process started may hold its end.
        """
        if not self._connected or self._main is None:
            return
        connection = self._main.get_extra_info("socket")
        (left,) = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.FIONREAD, bytes(4)))
        if left:
            self._loop.call_later(_DRAIN_SECONDS, self._drain)
        else:
            self._main.abort()

    def _main_lost(self) -> None:
        self._connected = False
        self.kill()
        self._gone()

    def _gone(self) -> None:
        assert self._process is not None
        if self._connected or self._process.returncode is None or self.ended.done():
            return
        self.ended.set_result(None)
        status = self._process.returncode
        _LOG.debug("the process of %s ended with status %d", self._name, status)
        self._lost()


def _write(transport: asyncio.WriteTransport, pieces: Sequence[Any]) -> None:
    """Send the pieces of a message: copied together where that costs less than a list of them."""
    if sum([len(piece) for piece in pieces]) <= _SMALL:
        transport.write(b"".join(pieces))
    else:
        transport.writelines(pieces)
