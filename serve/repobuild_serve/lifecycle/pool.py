"""Threads for work that takes long, which never keep the process from ending.

``ThreadPoolExecutor`` joins its threads at exit, so that a model whose loading hangs would outlive the exit
time-out. These threads are daemons.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_Job = Callable[[], None]


class Pool:
    """Runs calls on up to ``size`` threads, which are started as they are needed.

    Args:
        loop: Where results are handed over.
        size: Most threads.
        name: Prefix of the threads' names.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, size: int, name: str) -> None:
        self._loop = loop
        self._size = size
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def run(self, call: Callable[[], _T], discard: Callable[[_T], None] | None = None) -> asyncio.Future[_T]:
        """Call on a thread; to be called on the loop's thread.

        Args:
            call: What to do.
            discard: What to do with a result that nobody waits for any more.

        Returns:
            Its result. Cancelling it before the call begins means that it is never made.
        """
        future: asyncio.Future[_T] = self._loop.create_future()
        self._unfinished += 1
        self._idle.clear()
        self._jobs.put(lambda: self._work(call, future, discard))
        if len(self._threads) < min(self._size, self._unfinished):
            thread = threading.Thread(
                target=self._serve, name=f"{self._name}-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        return future

    async def idle(self) -> None:
        """Wait until every call has ended, those that nobody waits for any more among them."""
        await self._idle.wait()

    def close(self) -> None:
        """Let the threads end after what has been handed over; does not wait."""
        for _ in self._threads:
            self._jobs.put(None)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            # Else the last job, and the model it loaded, would be held until the next one comes.
            del job

    def _work(
        self, call: Callable[[], _T], future: asyncio.Future[_T], discard: Callable[[_T], None] | None
    ) -> None:
        if future.cancelled():
            self._tell(self._finished)
            return
        try:
            result = call()
        except BaseException as exc:  # noqa: BLE001 - handed over to whoever waits
            error = exc
            self._tell(lambda: self._hand_over(future, lambda: future.set_exception(error), None))
            return
        self._tell(
            lambda: self._hand_over(
                future, lambda: future.set_result(result), (lambda: discard(result)) if discard else None
            )
        )

    def _tell(self, call: _Job) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            # The loop is closed: the process is about to end without waiting for this thread.
            if not self._loop.is_closed():
                raise

    def _hand_over(self, future: asyncio.Future[_T], settle: _Job, discard: _Job | None) -> None:
        self._finished()
        if not future.cancelled():
            settle()
        elif discard is not None:
            discard()

    def _finished(self) -> None:
        self._unfinished -= 1
        if not self._unfinished:
            self._idle.set()
