"""The end of a batch: its answers on their way, in order if the model asks for that, and counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from repobuild_serve.core.execution import Outcome
from repobuild_serve.core.statistics import Statistics
from repobuild_serve.core.ticket import Answer, Sink, Ticket
from repobuild_serve.errors import RequestError
from repobuild_serve.scheduling.forming import Batch


class Delivery:
    """Passes what came of batches to the sink. Every method is called on the loop's thread.

    Args:
        statistics: Counters to keep.
        batched: Whether shapes on the wire start with a batch dim.
        preserve_ordering: Whether answers leave in the order in which batches were formed.
    """

    def __init__(self, statistics: Statistics, *, batched: bool, preserve_ordering: bool) -> None:
        self._statistics = statistics
        self._batched = batched
        self._order: deque[Batch] | None = deque() if preserve_ordering else None
        self._finished: dict[int, tuple[Batch, Outcome]] = {}

    def start(self, sink: Sink) -> None:
        """Learn where answers go."""
        self._sink = sink

    def expect(self, batch: Batch) -> None:
        """A batch has been formed and will run after those expected before it."""
        if self._order is not None:
            self._order.append(batch)

    def forget(self, batch: Batch) -> None:
        """A batch that was expected will not run."""
        if self._order is not None:
            self._order.remove(batch)

    def refuse(self, tickets: Sequence[Ticket], error: RequestError) -> None:
        """Answer requests that do not run; they are counted by whoever knows why."""
        if tickets:
            self._sink.deliver(Answer([t.number for t in tickets], [t.rows for t in tickets], error=error))

    def finish(self, batch: Batch, outcome: Outcome) -> None:
        """Deliver what came of a batch that was expected, as soon as its turn has come."""
        if self._order is None:
            self._deliver(batch, outcome)
            return
        self._finished[id(batch)] = (batch, outcome)
        while self._order and id(self._order[0]) in self._finished:
            self._deliver(*self._finished.pop(id(self._order.popleft())))

    def _deliver(self, batch: Batch, outcome: Outcome) -> None:
        tickets, timing = batch.tickets, outcome.timing
        waited = len(tickets) * timing.start
        for ticket in tickets:
            waited -= ticket.arrived
            ticket.timing = timing
        if outcome.responses is not None:
            for response in outcome.responses:
                self._sink.respond(response)
            for ticket in tickets:
                self._sink.ran(ticket.number, timing)
        else:
            self._sink.deliver(
                Answer(
                    [ticket.number for ticket in tickets],
                    [ticket.rows for ticket in tickets],
                    outcome.outputs,
                    outcome.error,
                    self._batched,
                )
            )
        # After the sink: the success time of a request ends when its answer has been sent.
        if outcome.error is None:
            self._statistics.executed(batch.rows, len(tickets), waited, timing)
        else:
            self._statistics.failed_execution(batch.rows, len(tickets), waited, timing)
