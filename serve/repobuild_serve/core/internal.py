"""Requests that the server makes to its own models: ensemble steps, and calls out of python models."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from repobuild_serve.core.statistics import Timing
from repobuild_serve.core.surplus import log_dropped
from repobuild_serve.core.ticket import Answer, Response, Ticket, responses_of
from repobuild_serve.errors import Code, RequestError

if TYPE_CHECKING:
    from repobuild_serve.core.model import ModelVersion
    from repobuild_serve.core.router import Router

_LOG = logging.getLogger(__name__)

Receive = Callable[[Response], None]
"""Takes the responses to one request, the last of which is final."""


class InternalCalls:
    """A front end without a wire."""

    def __init__(self, loop: asyncio.AbstractEventLoop, router: Router) -> None:
        self._loop = loop
        self._base = router.register(self)
        self._number = 0
        self._waiting: dict[int, Receive] = {}
        self._running: dict[int, Callable[[Timing], None]] = {}

    def call(self, version: ModelVersion, ticket: Ticket, receive: Receive) -> None:
        """Hand a request to a model.

        Args:
            version: The model.
            ticket: The request; its number and arrival are set here.
            receive: Called with each response, on the loop's thread, never before this call returned; a
                refusal comes this way too.
        """
        self._number += 1
        ticket.number = self._base + self._number
        ticket.arrived = time.monotonic_ns()
        self._waiting[ticket.number] = receive
        try:
            version.submit(ticket)
        except RequestError as exc:
            self._refuse(ticket, exc)
        except Exception:  # noqa: BLE001 - whoever asked waits for an answer, whatever went wrong
            _LOG.exception("model %s: an internal request could not be taken", version.settings.name)
            self._refuse(ticket, RequestError("internal error, see the server's log", Code.INTERNAL))

    def _refuse(self, ticket: Ticket, error: RequestError) -> None:
        self._loop.call_soon(self.respond, Response(ticket.number, error=error))

    def when_ran(self, number: int, tell: Callable[[Timing], None]) -> None:
        """Tell what an execution took that goes on after the last response to its request.

        Args:
            number: The request's.
            tell: Called once, on the loop's thread.
        """
        self._running[number] = tell

    def deliver(self, answer: Answer) -> None:
        """See ``Sink.deliver``."""
        for response in responses_of(answer):
            self.respond(response)

    def respond(self, response: Response) -> None:
        """See ``Sink.respond``."""
        receive = self._waiting.get(response.number)
        if receive is None:
            log_dropped(response)
            return
        if response.final:
            del self._waiting[response.number]
        try:
            receive(response)
        except Exception:  # noqa: BLE001 - the receiver's bug must not cost the model that answered its other requests
            _LOG.exception("the response to an internal request was not taken")

    def ran(self, number: int, timing: Timing) -> None:
        """See ``Sink.ran``."""
        tell = self._running.pop(number, None)
        if tell is not None:
            tell(timing)
