"""An instance of a python model: its process, the batches it runs, and its restarts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from repobuild_serve.backends.python.child import Child
from repobuild_serve.backends.python.coding import Coding
from repobuild_serve.backends.python.launch import Launch
from repobuild_serve.backends.python.logging_lines import log_line
from repobuild_serve.core.execution import Outcome
from repobuild_serve.core.services import Services
from repobuild_serve.core.statistics import Timing
from repobuild_serve.core.ticket import Response, Sink, Ticket
from repobuild_serve.errors import Code, LoadError, RequestError
from repobuild_serve.scheduling.forming import Batch
from repobuild_serve.scheduling.workers import Supervisor

_LOG = logging.getLogger(__name__)
_READY_SECONDS = 5
_FINALIZE_SECONDS = 30
_STEADY_SECONDS = 60
_LONGEST_PAUSE = 60
_DROPPED = "the model let go of the response sender of this request without sending its final response"

Respond = Callable[[Response], None]


class Calls(Protocol):
    """Answers what a child asks of the server."""

    def take(self, child: Child, head: Any, buffers: list[memoryview]) -> None:
        """Answer one call."""
        ...

    def close(self) -> None:
        """Forget what the child has set up, as it has ended."""
        ...


@dataclass(slots=True, eq=False)
class _Execution:
    """A batch that the child runs.

    Attributes:
        number: What the child calls it.
        tickets: Its requests.
        start: When it was handed over.
        finish: Told when it is done.
        numbers: What the child calls its requests, in order.
    """

    number: int
    tickets: Sequence[Ticket]
    start: int
    finish: Callable[[Outcome], None]
    numbers: list[int] = field(default_factory=list)


class PythonWorker:
    """One instance. Everything but ``run_here`` and ``stop`` is called on the loop's thread.

    Args:
        name: Instance name.
        coding: The form of the model's requests and responses in messages.
        launch: How to start its process.
        services: The server.
        calls: Answers what the model asks of the server.
    """

    inline = False
    helps_itself = False

    def __init__(self, name: str, coding: Coding, launch: Launch, services: Services, calls: Calls) -> None:
        self.name = name
        self._coding = coding
        self._launch = launch
        self._loop = services.loop
        self._services = services
        self._calls = calls
        self._child: Child | None = None
        self._usable = False
        self._stopping = False
        self._failures = 0
        self._ready_at = 0.0
        self._number = 0
        self._execution: _Execution | None = None
        self._flights: dict[int, tuple[int, Respond]] = {}
        self._started: asyncio.Future[Any] | None = None
        self._checks: dict[int, asyncio.Future[bool]] = {}
        self._supervisor: Supervisor | None = None
        self._sink: Sink | None = None
        self._restart: asyncio.Task[None] | None = None
        self._take = {
            "done": self._done,
            "respond": self._respond,
            "dropped": self._dropped,
            "hello": self._hello,
            "ready": self._settled,
            "failed": self._settled,
            "checked": self._checked,
            "log": self._log,
        }

    # Bringing up

    async def open(self) -> None:
        """Start the process and initialize the model.

        Raises:
            LoadError: The process cannot be started, or the model cannot be initialized.
        """
        interpreter = self._launch.interpreter
        self._started = self._loop.create_future()
        child = Child(self.name, self._message, lambda: self._lost(child))
        self._child = child
        try:
            await child.start(interpreter.program, interpreter.environment)
        except OSError as exc:
            self._child = None
            raise LoadError(f"{interpreter.program} cannot be run: {exc}", Code.INTERNAL) from exc
        try:
            async with asyncio.timeout(self._launch.start_seconds):
                await self._started
            if self._child is not child:
                # It has ended already, perhaps after its first word: nobody would say so again.
                raise LoadError(self._unhealthy().text, Code.INTERNAL)
            self._started = self._loop.create_future()
            child.send(self._launch.message)
            told = await self._started
        except TimeoutError as exc:
            raise LoadError(
                f"Stub process '{self.name}' did not start within {self._launch.start_seconds:g} seconds.",
                Code.INTERNAL,
            ) from exc
        finally:
            self._started = None
            if not self._usable:
                child.kill()
        if told["op"] == "failed":
            raise LoadError(told["text"], Code.INTERNAL)

    def _hello(self, head: Any, buffers: list[memoryview]) -> None:
        if self._started is not None and not self._started.done():
            self._started.set_result(head)

    def _settled(self, head: Any, buffers: list[memoryview]) -> None:
        self._usable = head["op"] == "ready"
        self._ready_at = self._loop.time()
        if self._started is not None and not self._started.done():
            self._started.set_result(head)

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
        if not self._usable:
            supervisor.lost(self, self._unhealthy())
            self._begin_restart()

    def submit(self, batch: Batch) -> None:
        """See ``Worker.submit``."""
        supervisor, sink = self._supervisor, self._sink
        assert supervisor is not None
        assert sink is not None
        self._run(batch.tickets, lambda outcome: supervisor.done(self, batch, outcome), sink.respond)

    def busy(self) -> bool:
        """See ``Worker.busy``."""
        return bool(self._flights)

    def stop(self) -> None:
        """See ``Worker.stop``; on any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop)

    def gone(self) -> bool:
        """See ``Worker.gone``."""
        return self._stopping and self._child is None

    async def is_ready(self) -> bool:
        """Whether the process runs, and its model's ``is_ready``, if it has one, says so in time."""
        if not self._usable or self._child is None:
            return False
        self._number += 1
        answer: asyncio.Future[bool] = self._loop.create_future()
        self._checks[self._number] = answer
        number = self._number
        self._child.tell({"op": "check", "n": number})
        try:
            async with asyncio.timeout(_READY_SECONDS):
                return await answer
        except TimeoutError:
            _LOG.error("%s: is_ready() gave no answer within %d seconds", self.name, _READY_SECONDS)
            return False
        finally:
            del self._checks[number]

    # Running

    def _run(self, tickets: Sequence[Ticket], finish: Callable[[Outcome], None], respond: Respond) -> None:
        self._number += 1
        execution = _Execution(self._number, tickets, time.monotonic_ns(), finish)
        buffers: list[Any] = []
        entries = []
        for ticket in tickets:
            self._number += 1
            execution.numbers.append(self._number)
            self._flights[self._number] = ticket.number, respond
            entries.append(self._coding.request(self._number, ticket, buffers))
        self._execution = execution
        if not self._usable or self._child is None:
            self._loop.call_soon(self._fail_all, self._unhealthy())
            return
        self._child.send({"op": "execute", "b": execution.number, "r": entries}, buffers)

    def _done(self, head: Any, buffers: list[memoryview]) -> None:
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
            responses += [
                Response(self._flights.pop(number)[0], error=error)
                for number in execution.numbers
                if number in self._flights
            ]
        else:
            for number, told in zip(execution.numbers, head["r"], strict=False):
                if told is not None:
                    ticket_number, _ = self._flights.pop(number)
                    responses.append(self._coding.response(ticket_number, told, buffers))
        execution.finish(Outcome(timing, error=error, responses=responses))

    def _respond(self, head: Any, buffers: list[memoryview]) -> None:
        number, final = head["n"], head["final"]
        flight = self._flights.pop(number, None) if final else self._flights.get(number)
        if flight is not None:
            flight[1](self._coding.response(flight[0], head.get("r"), buffers, final=final))

    def _dropped(self, head: Any, buffers: list[memoryview]) -> None:
        flight = self._flights.pop(head["n"], None)
        if flight is not None:
            flight[1](Response(flight[0], error=RequestError(_DROPPED, Code.INTERNAL, plain=True)))

    def _message(self, head: Any, buffers: list[memoryview]) -> None:
        take = self._take.get(head["op"])
        if take is not None:
            take(head, buffers)
        elif self._child is not None:
            self._calls.take(self._child, head, buffers)

    def _checked(self, head: Any, buffers: list[memoryview]) -> None:
        if "error" in head:
            _LOG.error("%s: is_ready() failed: %s", self.name, head["error"])
        answer = self._checks.get(head["n"])
        if answer is not None and not answer.done():
            answer.set_result(head["ready"])

    def _log(self, head: Any, buffers: list[memoryview]) -> None:
        log_line(self.name, head)

    # Losing the process, and getting another one

    def _unhealthy(self) -> RequestError:
        return RequestError(f"Stub process '{self.name}' is not healthy.", Code.INTERNAL, plain=True)

    def _lost(self, child: Child) -> None:
        if child is not self._child:
            return
        was_usable, self._usable, self._child = self._usable, False, None
        self._calls.close()
        if self._started is not None and not self._started.done():
            self._started.set_result({"op": "failed", "text": self._unhealthy().text})
        for answer in self._checks.values():
            if not answer.done():
                answer.set_result(False)
        if was_usable and not self._stopping:
            _LOG.error("the process of %s has ended unexpectedly", self.name)
            if self._loop.time() - self._ready_at > _STEADY_SECONDS:
                self._failures = 0
            if self._supervisor is not None:
                self._supervisor.lost(self, self._unhealthy())
        self._fail_all(self._unhealthy())
        if was_usable and self._supervisor is not None:
            self._begin_restart()

    def _fail_all(self, error: RequestError) -> None:
        """Answer every request that the child had."""
        execution, self._execution = self._execution, None
        flights, self._flights = self._flights, {}
        if execution is not None:
            responses = [
                Response(flights.pop(number)[0], error=error)
                for number in execution.numbers
                if number in flights
            ]
            now = time.monotonic_ns()
            timing = Timing(execution.start, execution.start, now, now, 0)
            execution.finish(Outcome(timing, error=error, responses=responses))
        for ticket_number, respond in flights.values():
            respond(Response(ticket_number, error=error))

    def _begin_restart(self) -> None:
        if self._stopping or self._services.profile.legacy or self._restart is not None:
            return
        self._restart = self._loop.create_task(self._restarting())

    async def _restarting(self) -> None:
        try:
            while not self._stopping:
                pause = min(2.0 ** (self._failures - 1), _LONGEST_PAUSE) if self._failures else 0.0
                self._failures += 1
                await asyncio.sleep(pause)
                try:
                    await self.open()
                except LoadError as exc:
                    _LOG.error("%s could not be started again: %s", self.name, exc.text)
                    continue
                _LOG.info("%s has been started again", self.name)
                break
        finally:
            self._restart = None
        if self._usable and self._supervisor is not None:
            self._supervisor.found(self)
        elif not self._stopping:
            self._begin_restart()

    # Ending

    def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        if self._restart is not None:
            self._restart.cancel()
        if self._child is None:
            return
        ending = self._loop.create_task(self._end(self._child))
        self._services.endings.add(ending)
        ending.add_done_callback(self._services.endings.discard)

    async def _end(self, child: Child) -> None:
        if not self._usable:
            child.kill()
        child.send({"op": "finalize"})
        try:
            async with asyncio.timeout(_FINALIZE_SECONDS):
                await asyncio.shield(child.ended)
        except TimeoutError:
            _LOG.error("%s did not end within %d seconds and is killed", self.name, _FINALIZE_SECONDS)
            child.kill()
            await child.ended
        except asyncio.CancelledError:
            child.kill()
            raise
