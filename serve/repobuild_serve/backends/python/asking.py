"""Asking a model whether it is ready (Triton contract, ``is_ready``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from repobuild_serve.backends.python.process import Process

_LOG = logging.getLogger(__name__)
_SECONDS = 5


class Asking:
    """Puts one question at a time to a process, however many want to know.

    They wait together, and are told no when that has taken too long. The question stays open then, and is not
    put again: a model that hangs holds one thread of its process, and its late answer is for whoever waits by
    then. Every method is called on the loop's thread.

    Args:
        name: Instance name.
        process: Whom to ask.
    """

    def __init__(self, name: str, process: Process) -> None:
        self._name = name
        self._process = process
        self._open = False
        self._awaited: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._complaint = ""

    def ask(self) -> Awaitable[bool]:
        """Ask, or join those who have; what the model says, False if it does not say anything in time."""
        if self._awaited is None:
            loop = asyncio.get_running_loop()
            self._awaited = loop.create_future()
            self._timer = loop.call_later(_SECONDS, self._overdue)
            if not self._open:
                self._open = True
                self._process.tell({"op": "check"})
        # Whoever gives up must not take the answer from the others.
        return asyncio.shield(self._awaited)

    def answered(self, head: Any, buffers: list[memoryview]) -> None:
        """The process has answered."""
        self._open = False
        self._settle(ready=head["ready"], complaint=head.get("error", ""))

    def lost(self) -> None:
        """The process has ended."""
        self._open = False
        self._settle(ready=False, complaint=self._complaint)

    def _overdue(self) -> None:
        self._settle(ready=False, complaint=f"no answer within {_SECONDS:g} seconds")

    def _settle(self, *, ready: bool, complaint: str) -> None:
        if complaint and complaint != self._complaint:
            # Not at every look: whoever wants to know asks again every few seconds.
            _LOG.error("%s: is_ready() failed: %s", self._name, complaint)
        self._complaint = complaint
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            awaited.set_result(ready)
