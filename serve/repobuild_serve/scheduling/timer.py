"""A timer that keeps microseconds.

uvloop rounds its timers to whole milliseconds, so a queue delay of 500 us would take 1 to 2 ms. On Linux a
timerfd, watched by the loop like a socket, has no such grain. Where the system has none, the loop's own timer
is used and delays are rounded up to its grain.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_TFD_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000
_SECOND = 1_000_000_000


class DeadlineTimer:
    """Calls back at a point in time; one pending deadline, the earliest asked for.

    Args:
        loop: Loop whose thread makes the call.
        callback: What to call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._armed = 0
        self._handle: asyncio.TimerHandle | None = None
        self._fd = _open_timerfd()
        if self._fd >= 0:
            loop.add_reader(self._fd, self._readable)

    def arm(self, deadline: int | None) -> None:
        """Call back at ``deadline`` (``time.monotonic_ns()``), or at an earlier one asked for before.

        None asks for nothing. A deadline that no longer matters costs one idle call, which is cheaper than
        to cancel it.
        """
        if deadline is None or (self._armed and self._armed <= deadline):
            return
        self._armed = deadline
        if self._fd >= 0:
            _settime(self._fd, deadline)
            return
        if self._handle is not None:
            self._handle.cancel()
        delay = max(0, deadline - time.monotonic_ns()) / _SECOND
        self._handle = self._loop.call_later(delay, self._fire)

    def close(self) -> None:
        """Stop and release the timer."""
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _readable(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self._fire()

    def _fire(self) -> None:
        self._armed = 0
        self._handle = None
        self._callback()


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


def _libc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.timerfd_create.argtypes = (ctypes.c_int, ctypes.c_int)
        libc.timerfd_settime.argtypes = (
            ctypes.c_int,
            ctypes.c_int,
            ctypes.POINTER(_Itimerspec),
            ctypes.c_void_p,
        )
    except (OSError, AttributeError):
        return None
    return libc


_LIBC = _libc()


def _open_timerfd() -> int:
    """A non-blocking timerfd on the monotonic clock, or -1 where the system has none."""
    return int(_LIBC.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK_CLOEXEC)) if _LIBC is not None else -1


def _settime(fd: int, deadline: int) -> None:
    assert _LIBC is not None
    # An all-zero value would disarm the timer.
    seconds, nanoseconds = divmod(max(deadline, 1), _SECOND)
    spec = _Itimerspec(_Timespec(0, 0), _Timespec(seconds, nanoseconds))
    if _LIBC.timerfd_settime(fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
