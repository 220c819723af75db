"""What answers the requests of an ensemble."""

from __future__ import annotations

import asyncio
import time

from repobuild_serve.config.settings import ModelSettings
from repobuild_serve.core.readiness import DOWN, READY, Readiness
from repobuild_serve.core.services import Services
from repobuild_serve.core.statistics import Statistics
from repobuild_serve.core.ticket import Response, Sink, Tensor, Ticket
from repobuild_serve.ensembles.flow import Flow
from repobuild_serve.ensembles.graph import Graph
from repobuild_serve.errors import Code, RequestError


class EnsembleRunner:
    """Passes requests through the members of an ensemble; implements ``Runner``.

    A request holds the members that it needs, as they were when it came. Their schedulers see the steps like
    any other request.

    Args:
        settings: The ensemble.
        services: Finds and calls the members.
        statistics: Counters to keep.
    """

    def __init__(self, settings: ModelSettings, services: Services, statistics: Statistics) -> None:
        self._settings = settings
        self._services = services
        self._statistics = statistics
        self._graph = Graph(settings.steps)
        self._outputs = tuple(output.name for output in settings.outputs)
        self._flows: set[Flow] = set()
        self._closed = False

    def start(self, loop: asyncio.AbstractEventLoop, sink: Sink) -> None:
        """See ``Runner.start``."""
        self._loop = loop
        self._sink = sink

    def submit(self, ticket: Ticket) -> None:
        """See ``Runner.submit``."""
        if self._closed:
            raise RequestError(
                "Server is stopping, scheduler for model has stopped accepting new inference requests",
                Code.UNAVAILABLE,
                tagged=True,
            )
        wanted = ticket.context.outputs
        flow = Flow(
            self._settings.name,
            self._graph,
            self._services,
            ticket,
            self._inputs(ticket),
            self._outputs if wanted is None else tuple(name for name in self._outputs if name in wanted),
            decoupled=self._settings.decoupled,
            respond=self._respond,
            ended=self._ended,
            settled=self._settled,
        )
        self._flows.add(flow)
        self._loop.call_soon(flow.begin)

    def pending(self) -> int:
        """See ``Runner.pending``: an ensemble has no queue of its own."""
        return 0

    def busy(self) -> bool:
        """See ``Runner.busy``."""
        return bool(self._flows)

    def ready(self) -> bool:
        """See ``Runner.ready``: whether every member is there."""
        for step in self._settings.steps:
            try:
                member = self._services.models.find(
                    step.model, str(step.version) if step.version >= 0 else ""
                )
            except RequestError:
                return False
            if not member.ready():
                return False
        return True

    def readiness(self) -> Readiness:
        """See ``Runner.readiness``: as in Triton, the members' instances are not asked."""
        return READY if self.ready() else DOWN

    def close(self) -> None:
        """See ``Runner.close``: what runs is finished by the members, or refused by them."""
        self._closed = True

    def gone(self) -> bool:
        """See ``Runner.gone``."""
        return not self._flows

    def _inputs(self, ticket: Ticket) -> dict[str, Tensor]:
        lead = (ticket.rows,) if self._settings.batched else ()
        return {
            config.name: Tensor(config.name, config.datatype, (*lead, *shape), buffer)
            for config, buffer, shape in zip(self._settings.inputs, ticket.inputs, ticket.shapes, strict=True)
            if buffer is not None and shape is not None
        }

    def _respond(self, response: Response) -> None:
        self._sink.respond(response)

    def _ended(self, flow: Flow, well: bool) -> None:
        self._flows.discard(flow)
        if not well:
            took = time.monotonic_ns() - flow.ticket.arrived
            self._statistics.failed_steps(took, 2 if self._services.profile.legacy else 1)

    def _settled(self, flow: Flow) -> None:
        ticket = flow.ticket
        self._statistics.ran_steps(ticket.rows, time.monotonic_ns() - ticket.arrived, flow.spent)
        if ticket.timing is None:
            # An ensemble that this one is a step of could not learn it from the last response.
            ticket.timing = flow.spent.timing(ticket.arrived)
            self._sink.ran(ticket.number, ticket.timing)
