"""An instance of a python model, as the scheduler sees it."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Sequence
from typing import Any, Protocol

from repobuild_serve.backends.python.asking import Asking
from repobuild_serve.backends.python.child import Child
from repobuild_serve.backends.python.coding import Coding
from repobuild_serve.backends.python.flights import Finish, Flights, Respond
from repobuild_serve.backends.python.launch import Launch
from repobuild_serve.backends.python.logging_lines import log_line
from repobuild_serve.backends.python.process import Process
from repobuild_serve.core.execution import Outcome
from repobuild_serve.core.readiness import Check
from repobuild_serve.core.services import Services
from repobuild_serve.core.ticket import Response, Sink, Ticket
from repobuild_serve.errors import RequestError
from repobuild_serve.scheduling.forming import Batch
from repobuild_serve.scheduling.workers import Supervisor


class Calls(Protocol):
    """Answers what a child asks of the server."""

    def take(self, child: Child, head: Any, buffers: list[memoryview]) -> None:
        """Answer one call."""
        ...

    def close(self) -> None:
        """Forget what the child has set up, as it has ended."""
        ...


class PythonWorker:
    """One instance. Everything but ``run_here`` and ``stop`` is called on the loop's thread.

    Args:
        name: Instance name.
        coding: The form of the model's requests and responses in messages.
        launch: How to start its process.
        services: The server.
        calls: Answers what the model asks of the server.

    Attributes:
        process: What runs the model.
    """

    inline = False
    helps_itself = False

    def __init__(self, name: str, coding: Coding, launch: Launch, services: Services, calls: Calls) -> None:
        self.name = name
        self.process = Process(name, launch, services, self)
        self._loop = services.loop
        self._calls = calls
        self._flights = Flights(coding)
        self._asking = Asking(name, self.process)
        self._supervisor: Supervisor | None = None
        self._sink: Sink | None = None
        self._take = {
            "done": self._flights.done,
            "respond": self._flights.respond,
            "dropped": self._flights.dropped,
            "checked": self._asking.answered,
            "log": self._log,
        }

    async def open(self) -> None:
        """Start the process and initialize the model.

        Raises:
            LoadError: The process cannot be started, or the model cannot be initialized.
        """
        await self.process.open()

    # Worker

    def run_here(self, tickets: Sequence[Ticket], rows: int) -> Outcome:
        """See ``Worker.run_here``; not on the loop's thread. Waits for every response."""
        result: concurrent.futures.Future[Outcome] = concurrent.futures.Future()
        self._loop.call_soon_threadsafe(self._run_alone, tickets, result)
        return result.result()

    def _run_alone(self, tickets: Sequence[Ticket], result: concurrent.futures.Future[Outcome]) -> None:
        outcomes: list[Outcome] = []
        errors: list[RequestError] = []
        left = len(tickets)

        def settle() -> None:
            if not outcomes or (left and outcomes[0].error is None) or result.done():
                return
            outcome = outcomes[0]
            result.set_result(Outcome(outcome.timing, error=outcome.error or next(iter(errors), None)))

        def respond(response: Response) -> None:
            nonlocal left
            left -= response.final
            if response.error is not None and not errors:
                errors.append(response.error)
            settle()

        def finish(outcome: Outcome) -> None:
            outcomes.append(outcome)
            for response in outcome.responses or ():
                respond(response)
            settle()

        self._run(tickets, finish, respond)

    def start(self, loop: asyncio.AbstractEventLoop, supervisor: Supervisor, sink: Sink) -> None:
        """See ``Worker.start``."""
        self._supervisor = supervisor
        self._sink = sink
        if not self.process.usable:
            supervisor.lost(self, self.process.unhealthy)
            self.process.restart()

    def submit(self, batch: Batch) -> None:
        """See ``Worker.submit``."""
        supervisor, sink = self._supervisor, self._sink
        assert supervisor is not None
        assert sink is not None
        self._run(batch.tickets, lambda outcome: supervisor.done(self, batch, outcome), sink.respond)

    def busy(self) -> bool:
        """See ``Worker.busy`` and ``Owner.busy``."""
        return len(self._flights) > 0

    def stop(self) -> None:
        """See ``Worker.stop``; on any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.process.stop)

    def gone(self) -> bool:
        """See ``Worker.gone``."""
        return self.process.gone

    def check(self) -> Check | None:
        """See ``Worker.check``."""
        return self._asking.ask if self.process.usable and self.process.has_check else None

    def _run(self, tickets: Sequence[Ticket], finish: Finish, respond: Respond) -> None:
        head, buffers = self._flights.begin(tickets, finish, respond)
        if self.process.usable:
            self.process.send(head, buffers)
        else:
            self._loop.call_soon(self._flights.fail_all, self.process.unhealthy)

    # Owner

    def take(self, child: Child, head: Any, buffers: list[memoryview]) -> None:
        """See ``Owner.take``."""
        take = self._take.get(head["op"])
        if take is not None:
            take(head, buffers)
        else:
            self._calls.take(child, head, buffers)

    def lost(self, *, unexpected: bool) -> None:
        """See ``Owner.lost``."""
        error = self.process.unhealthy
        self._calls.close()
        self._asking.lost()
        if unexpected and self._supervisor is not None:
            self._supervisor.lost(self, error)
        self._flights.fail_all(error)
        if unexpected and self._supervisor is not None:
            self.process.restart()

    def found(self) -> None:
        """See ``Owner.found``."""
        if self._supervisor is not None:
            self._supervisor.found(self)

    def _log(self, head: Any, buffers: list[memoryview]) -> None:
        log_line(self.name, head)
