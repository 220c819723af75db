"""One request on its way through an ensemble (Triton contract, ensembles)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from repobuild_serve.config.settings import EnsembleStep
from repobuild_serve.core.services import Services
from repobuild_serve.core.statistics import Spent, Timing
from repobuild_serve.core.surplus import log_dropped
from repobuild_serve.core.ticket import Response, Scalar, Tensor, Ticket
from repobuild_serve.ensembles.graph import Graph
from repobuild_serve.ensembles.members import Members
from repobuild_serve.ensembles.rows import Row
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.wire.checking import ticket_of

if TYPE_CHECKING:
    from repobuild_serve.core.model import ModelVersion

_LOG = logging.getLogger(__name__)


class Flow:
    """One request of an ensemble.

    It holds the members that it needs from its beginning to its end, so that one that is replaced or unloaded
    meanwhile still serves it.

    Args:
        name: The ensemble.
        graph: Its steps.
        services: Finds and calls the members.
        ticket: The request.
        inputs: Its inputs by ensemble tensor name.
        outputs: Ensemble tensors that make the response.
        decoupled: Whether the ensemble sends any number of responses.
        respond: Takes each response.
        ended: Called at the end, with whether all went well.
        settled: Called once it has gone well and the execution of every step is over.

    Attributes:
        ticket: The request.
        late: Steps that have given their last response, and whose executions go on.
        spent: What the others took.
    """

    def __init__(
        self,
        name: str,
        graph: Graph,
        services: Services,
        ticket: Ticket,
        inputs: Mapping[str, Tensor],
        outputs: tuple[str, ...],
        *,
        decoupled: bool,
        respond: Callable[[Response], None],
        ended: Callable[[Flow, bool], None],
        settled: Callable[[Flow], None],
    ) -> None:
        self.ticket = ticket
        self._name = name
        self._graph = graph
        self._services = services
        self._outputs = outputs
        self._decoupled = decoupled
        self._respond = respond
        self._ended = ended
        self._settled = settled
        self._root = Row(None, dict(inputs), set(graph.needed(outputs)))
        self._running = 0
        self._failed = self._over = False
        self._members = Members(services.models, [graph.steps[index] for index in sorted(self._root.steps)])
        self.late = 0
        self.spent = Spent()

    def begin(self) -> None:
        """Run the steps whose inputs are there."""
        self.spent.queue = time.monotonic_ns() - self.ticket.arrived
        if self._members.missing is not None:
            self._fail(self._members.missing)
            return
        self._advance(self._root)

    def _advance(self, changed: Row) -> None:
        """Start what can be started, answer the rows that are complete, and end when nothing runs."""
        for row in changed.downwards():
            for index in sorted(row.steps):
                if self._ready(row, index):
                    row.steps.discard(index)
                    self._start(row, index)
                if self._failed:
                    return
            self._answer(row)
        if not self._running:
            self._finish()

    def _ready(self, row: Row, index: int) -> bool:
        """Whether all inputs of a step are there, but for those that will never be."""
        for tensor in self._graph.steps[index].inputs.values():
            if row.get(tensor) is None:
                producer = self._graph.producer(tensor)
                # An input that was left out, or one that its step did not give: the member will say whether
                # it can do without.
                if producer is not None and not row.has_done(producer):
                    return False
        return True

    def _start(self, row: Row, index: int) -> None:
        step = self._graph.steps[index]
        member = self._members.of(step)
        try:
            ticket = self._member_ticket(row, step, member)
        except RequestError as exc:
            self._fail(exc)
            return
        self._running += 1
        self._services.calls.call(member, ticket, partial(self._received, row, index, ticket, count()))

    def _member_ticket(self, row: Row, step: EnsembleStep, member: ModelVersion) -> Ticket:
        tensors = [
            replace(tensor, name=name)
            for name, source in step.inputs.items()
            if (tensor := row.get(source)) is not None
        ]
        context = self.ticket.context
        return ticket_of(
            member.plan,
            tensors,
            timeout_ns=self.ticket.timeout_ns,
            priority=self.ticket.priority,
            context=replace(context, outputs=tuple(step.outputs)),
        )

    def _received(
        self, row: Row, index: int, ticket: Ticket, seen: Iterator[int], response: Response
    ) -> None:
        """Take a response of a step, whatever goes wrong with it."""
        try:
            self._take(row, index, ticket, response, first=next(seen) == 0)
        except Exception:  # noqa: BLE001 - whoever asked waits for an answer
            _LOG.exception("ensemble '%s': the response of a step could not be taken", self._name)
            if not (self._failed or self._over):
                self._fail(RequestError("internal error, see the server's log", Code.INTERNAL))

    def _take(self, row: Row, index: int, ticket: Ticket, response: Response, *, first: bool) -> None:
        if response.final:
            self._running -= 1
            if ticket.timing is not None:
                self.spent.add(ticket.timing)
            elif response.error is None:
                self.late += 1
                self._services.calls.when_ran(ticket.number, self._ran)
        if self._failed:
            if not self._running:
                self._end(well=False)
            return
        if not self._decoupled and not first:
            # Of a member that is to give one response; what has been done with the first one stays.
            if not response.void:
                log_dropped(response, self._graph.steps[index].model)
            self._advance(row)
        elif not self._decoupled and response.void:
            self._fail(RequestError("expected a single response, got 0", Code.INTERNAL))
        elif response.error is not None:
            self._fail(response.error)
        else:
            self._advance(self._row_of(row, index, response, first=first))

    def _ran(self, timing: Timing) -> None:
        """Take what a step took whose last response came before its execution was over."""
        self.late -= 1
        self.spent.add(timing)
        self._settle()

    def _end(self, *, well: bool) -> None:
        self._members.let_go()
        self._ended(self, well)
        self._over = well
        self._settle()

    def _settle(self) -> None:
        if self._over and not self.late:
            self._settled(self)

    def _row_of(self, row: Row, index: int, response: Response, *, first: bool) -> Row:
        """Put the tensors of a step's response where they belong; the row that has changed."""
        names = self._graph.steps[index].outputs
        tensors = {
            names[tensor.name]: replace(tensor, name=names[tensor.name])
            for tensor in response.outputs
            if tensor.name in names
        }
        if response.void:
            # All responses have come; if there was none, nothing follows from the step.
            row.answered = True
            return row
        if first and (response.final or not self._decoupled):
            row.tensors |= tensors
            row.done.add(index)
            return row
        # One of several responses: what follows from it happens on a row of its own.
        following = self._graph.following(index) & row.steps
        new = Row(row, tensors, set(following))
        new.done.add(index)
        row.answered = True
        row.below[new] = None
        return new

    def _answer(self, row: Row) -> None:
        """Send the response of a row whose outputs are all there."""
        if row.answered:
            return
        tensors = [(name, row.get(name)) for name in self._outputs]
        if any(tensor is None for _, tensor in tensors):
            return
        row.answered = True
        if row.parent is not None and not row.below:
            del row.parent.below[row]
        if not self._decoupled:
            self._set_timing()
        self._respond(
            Response(
                self.ticket.number,
                [replace(tensor, name=name) for name, tensor in tensors if tensor is not None],
                parameters=self._parameters(),
                final=not self._decoupled,
            )
        )

    def _set_timing(self) -> None:
        """Tell an ensemble that this one is a step of what the steps took; it looks at the last response."""
        if not self.late:
            self.ticket.timing = self.spent.timing(self.ticket.arrived)

    def _parameters(self) -> dict[str, Scalar]:
        context = self.ticket.context
        return {
            "sequence_id": context.correlation_id,
            "sequence_start": bool(context.flags & 1),
            "sequence_end": bool(context.flags & 2),
        }

    def _fail(self, error: RequestError) -> None:
        self._failed = True
        text = f"in ensemble '{self._name}', {error.told(self.ticket.context.request_id)}"
        self._respond(Response(self.ticket.number, error=RequestError(text, error.code, plain=error.plain)))
        if not self._running:
            self._end(well=False)

    def _finish(self) -> None:
        if not all(row.answered for row in self._root.downwards()):
            self._fail(
                RequestError(
                    "unexpected deadlock, at least one output is not set while no more ensemble steps can be "
                    "made",
                    Code.INVALID_ARG,
                    tagged=True,
                )
            )
            return
        if self._decoupled:
            self._set_timing()
            self._respond(Response(self.ticket.number, void=True))
        self._end(well=True)
