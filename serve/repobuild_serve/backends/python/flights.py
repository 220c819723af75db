"""The batch that a process runs, and the requests that it has not answered for good."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from repobuild_serve.backends.python.coding import Coding
from repobuild_serve.core.execution import Outcome
from repobuild_serve.core.statistics import Timing
from repobuild_serve.core.ticket import Response, Ticket
from repobuild_serve.errors import Code, RequestError

_LOG = logging.getLogger(__name__)
_DROPPED = "the model let go of the response sender of this request without sending its final response"

Respond = Callable[[Response], None]
Finish = Callable[[Outcome], None]


@dataclass(slots=True, eq=False)
class _Execution:
    """A batch that the process runs.

    Attributes:
        number: What the process calls it.
        tickets: Its requests.
        start: When it was handed over.
        finish: Told when it is done.
        numbers: What the process calls its requests, in order.
    """

    number: int
    tickets: Sequence[Ticket]
    start: int
    finish: Finish
    numbers: list[int] = field(default_factory=list)


class Flights:
    """Turns a batch into a message, and the messages about it into its outcome and responses.

    Args:
        coding: The form of the model's requests and responses in messages.
    """

    def __init__(self, coding: Coding) -> None:
        self._coding = coding
        self._number = 0
        self._execution: _Execution | None = None
        self._open: dict[int, tuple[int, Respond]] = {}

    def __len__(self) -> int:
        """Requests that still wait for responses."""
        return len(self._open)

    def begin(self, tickets: Sequence[Ticket], finish: Finish, respond: Respond) -> tuple[Any, list[Any]]:
        """Take note of a batch; none may be running.

        Args:
            tickets: Its requests.
            finish: Told when it is done, with the responses that came with its end.
            respond: Takes responses that come before, or after, its end.

        Returns:
            The message that makes the process run it, and the message's buffers.
        """
        self._number += 1
        execution = _Execution(self._number, tickets, time.monotonic_ns(), finish)
        buffers: list[Any] = []
        entries = []
        for ticket in tickets:
            self._number += 1
            execution.numbers.append(self._number)
            entries.append(self._coding.request(self._number, ticket, buffers))
        # Only now, so that nothing is left of a batch that cannot be put into a message.
        for number, ticket in zip(execution.numbers, tickets, strict=True):
            self._open[number] = ticket.number, respond
        self._execution = execution
        return {"op": "execute", "b": execution.number, "r": entries}, buffers

    def done(self, head: Any, buffers: list[memoryview]) -> None:
        """The batch is done."""
        execution = self._execution
        assert execution is not None
        self._execution = None
        end = time.monotonic_ns()
        began, ended = head["t"]
        timing = Timing(execution.start, began, ended, end, 0)
        error = None
        responses: list[Response] = []
        if "error" in head:
            _LOG.error("%s", head["error"])
            error = RequestError(head["error"], Code.INTERNAL, plain=True)
            responses += self._refused(execution, error)
        else:
            for number, told in zip(execution.numbers, head["r"], strict=False):
                if told is not None:
                    ticket_number, _ = self._open.pop(number)
                    responses.append(self._coding.response(ticket_number, told, buffers))
        execution.finish(Outcome(timing, error=error, responses=responses))

    def respond(self, head: Any, buffers: list[memoryview]) -> None:
        """A request has got a response through its response sender."""
        number, final = head["n"], head["final"]
        flight = self._open.pop(number, None) if final else self._open.get(number)
        if flight is not None:
            flight[1](self._coding.response(flight[0], head.get("r"), buffers, final=final))

    def dropped(self, head: Any, buffers: list[memoryview]) -> None:
        """The response sender of a request is gone."""
        flight = self._open.pop(head["n"], None)
        if flight is not None:
            flight[1](Response(flight[0], error=RequestError(_DROPPED, Code.INTERNAL, plain=True)))

    def fail_all(self, error: RequestError) -> None:
        """Answer every request that the process had."""
        execution, self._execution = self._execution, None
        responses = [] if execution is None else self._refused(execution, error)
        # Whoever is told may hand over the next batch at once.
        left, self._open = self._open, {}
        if execution is not None:
            now = time.monotonic_ns()
            timing = Timing(execution.start, execution.start, now, now, 0)
            execution.finish(Outcome(timing, error=error, responses=responses))
        for ticket_number, respond in left.values():
            respond(Response(ticket_number, error=error))

    def _refused(self, execution: _Execution, error: RequestError) -> list[Response]:
        return [
            Response(self._open.pop(number)[0], error=error)
            for number in execution.numbers
            if number in self._open
        ]
