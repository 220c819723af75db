"""The process of an instance: its start, its restarts after a crash, and its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from repobuild_serve.backends.python.child import Child
from repobuild_serve.backends.python.launch import Launch
from repobuild_serve.core.services import Services
from repobuild_serve.errors import Code, LoadError, RequestError

_LOG = logging.getLogger(__name__)
_FINALIZE_SECONDS = 30
_LOOK_SECONDS = 0.01
_STEADY_SECONDS = 60
_LONGEST_PAUSE = 60


class Owner(Protocol):
    """Whose process it is. Every method is called on the loop's thread."""

    def take(self, child: Child, head: Any, buffers: list[memoryview]) -> None:
        """Take a message that is not about the start of the process."""
        ...

    def lost(self, *, unexpected: bool) -> None:
        """The process has ended.

        Args:
            unexpected: Whether its model had been initialized, and was not to end.
        """
        ...

    def found(self) -> None:
        """A process has been started again, and its model initialized."""
        ...

    def busy(self) -> bool:
        """Whether the process still owes responses."""
        ...


class Process:
    """One process at a time. Everything is called on the loop's thread.

    Args:
        name: Instance name.
        launch: How to start it.
        services: The server.
        owner: Told of its messages and its fate.

    Attributes:
        usable: Whether it runs and its model is initialized.
        has_check: Whether its model has an ``is_ready``.
    """

    def __init__(self, name: str, launch: Launch, services: Services, owner: Owner) -> None:
        self.usable = False
        self.has_check = False
        self._name = name
        self._launch = launch
        self._loop = services.loop
        self._services = services
        self._owner = owner
        self._child: Child | None = None
        self._stopping = False
        self._failures = 0
        self._ready_at = 0.0
        self._started: asyncio.Future[Any] | None = None
        self._restart: asyncio.Task[None] | None = None

    @property
    def child(self) -> Child | None:
        """The process that runs now, if one does."""
        return self._child

    @property
    def restarting(self) -> bool:
        """Whether it is being started again."""
        return self._restart is not None

    @property
    def unhealthy(self) -> RequestError:
        """What a request is told that it cannot run, or ended with."""
        return RequestError(f"Stub process '{self._name}' is not healthy.", Code.INTERNAL, plain=True)

    def send(self, head: Any, buffers: Sequence[Any] = ()) -> None:
        """Send what the main thread of a usable process is to do."""
        assert self._child is not None
        self._child.send(head, buffers)

    def tell(self, head: Any) -> None:
        """Send what other threads of a usable process wait for."""
        assert self._child is not None
        self._child.tell(head)

    # Start

    async def open(self) -> None:
        """Start it and initialize the model.

        Raises:
            LoadError: It cannot be started, or the model cannot be initialized.
        """
        interpreter = self._launch.interpreter
        self._started = self._loop.create_future()
        child = Child(
            self._name,
            lambda head, buffers: self._message(child, head, buffers),
            lambda: self._lost(child),
        )
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
                raise LoadError(self.unhealthy.text, Code.INTERNAL)
            self._started = self._loop.create_future()
            child.send(self._launch.message)
            told = await self._started
        except TimeoutError as exc:
            raise LoadError(
                f"Stub process '{self._name}' did not start within {self._launch.start_seconds:g} seconds.",
                Code.INTERNAL,
            ) from exc
        finally:
            self._started = None
            if not self.usable:
                child.kill()
        if told["op"] == "failed":
            raise LoadError(told["text"], Code.INTERNAL)

    def _message(self, child: Child, head: Any, buffers: list[memoryview]) -> None:
        if child is not self._child:
            # What one that was given up says before it ends must not be taken for a word of its successor.
            return
        operation = head["op"]
        if operation == "hello":
            self._settle(head)
        elif operation in {"ready", "failed"}:
            self.usable = operation == "ready"
            self.has_check = head.get("check", False)
            self._ready_at = self._loop.time()
            self._settle(head)
        else:
            self._owner.take(child, head, buffers)

    def _settle(self, head: Any) -> None:
        if self._started is not None and not self._started.done():
            self._started.set_result(head)

    # Crash and restart

    def _lost(self, child: Child) -> None:
        if child is not self._child:
            return
        unexpected = self.usable and not self._stopping
        self.usable, self._child = False, None
        self._settle({"op": "failed", "text": self.unhealthy.text})
        if unexpected:
            _LOG.error("the process of %s has ended unexpectedly", self._name)
            if self._loop.time() - self._ready_at > _STEADY_SECONDS:
                self._failures = 0
        self._owner.lost(unexpected=unexpected)

    def restart(self) -> None:
        """Start it again, after longer and longer pauses as long as that fails."""
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
                    _LOG.error("%s could not be started again: %s", self._name, exc.text)
                    continue
                _LOG.info("%s has been started again", self._name)
                break
        finally:
            self._restart = None
        if self.usable:
            self._owner.found()
        else:
            self.restart()

    # End

    def stop(self) -> None:
        """Let the process answer what it still has to, then finalize and end, for good; does not wait."""
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

    @property
    def gone(self) -> bool:
        """Whether it has ended, some time after ``stop``."""
        return self._stopping and self._child is None

    async def _end(self, child: Child) -> None:
        if not self.usable:
            child.kill()
        try:
            # Looking again and again: an instance that goes while it still owes responses is rare.
            while self._owner.busy():  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)
            child.send({"op": "finalize"})
            async with asyncio.timeout(_FINALIZE_SECONDS):
                await asyncio.shield(child.ended)
        except TimeoutError:
            _LOG.error("%s did not end within %d seconds and is killed", self._name, _FINALIZE_SECONDS)
            child.kill()
            await child.ended
        except asyncio.CancelledError:
            child.kill()
            raise
