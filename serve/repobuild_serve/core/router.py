"""Which front end a request came from, and so where its answer goes."""

from __future__ import annotations

from repobuild_serve.core.statistics import Timing
from repobuild_serve.core.ticket import Answer, Response, Sink, responses_of

_SHIFT = 48


class Router:
    """The sink of every model: passes on to the front end whose ticket numbers an answer carries.

    The first front end to register is expected to get nearly everything.
    """

    def __init__(self) -> None:
        self._sinks: list[Sink] = []

    def register(self, sink: Sink) -> int:
        """Add a front end.

        Returns:
            What it must add to the numbers of its tickets, which must themselves be below 2**48.
        """
        self._sinks.append(sink)
        return (len(self._sinks) - 1) << _SHIFT

    def deliver(self, answer: Answer) -> None:
        """Pass on what came of a batch, whose requests may have come from several front ends."""
        numbers = answer.numbers
        if max(numbers) >> _SHIFT == 0:
            self._sinks[0].deliver(answer)
            return
        # Outputs lie one behind the other, so a batch of several front ends is taken apart.
        for response in responses_of(answer):
            self.respond(response)

    def respond(self, response: Response) -> None:
        """Pass on one response."""
        self._sinks[response.number >> _SHIFT].respond(response)

    def ran(self, number: int, timing: Timing) -> None:
        """Pass on what an execution took."""
        self._sinks[number >> _SHIFT].ran(number, timing)
