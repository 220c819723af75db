"""What a python model asks of the server: other models, their loading, and its own metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from repobuild_serve.backends.python.child import Child
from repobuild_serve.backends.python.coding import CODES, NUMBERS
from repobuild_serve.backends.python.metric_calls import MetricCalls
from repobuild_serve.backends.python.model_calls import ModelCalls, not_ready
from repobuild_serve.core.readiness import DOWN, READY
from repobuild_serve.core.services import Services
from repobuild_serve.core.ticket import Response
from repobuild_serve.errors import Code, RequestError

_LOG = logging.getLogger(__name__)


class ServerCalls:
    """Answers the calls of one instance's process, on the loop's thread.

    Args:
        services: The server.
        name: Instance name.
    """

    def __init__(self, services: Services, name: str) -> None:
        self._services = services
        self._name = name
        self._models = ModelCalls(services)
        self._metrics = MetricCalls(services.custom_metrics)
        self._tasks: set[asyncio.Task[None]] = set()
        self._take: dict[str, Callable[[Child, Any, list[memoryview]], None]] = {
            "infer": self._infer,
            "load": self._load,
            "unload": self._unload,
            "model_ready": self._ready,
            "metric": self._metric,
        }

    def take(self, child: Child, head: Any, buffers: list[memoryview]) -> None:
        """Answer one call."""
        try:
            self._take[head["op"]](child, head, buffers)
        except Exception as exc:  # noqa: BLE001 - the model waits for an answer, whatever went wrong
            _LOG.exception("%s: a call of the model failed", self._name)
            if "call" in head:
                self._refuse(child, head, RequestError(f"{type(exc).__name__}: {exc}", Code.INTERNAL))

    def close(self) -> None:
        """Forget the metrics of a process that has ended."""
        self._metrics.close()

    def _infer(self, child: Child, head: Any, buffers: list[memoryview]) -> None:
        call = head["call"]

        def receive(response: Response) -> None:
            if response.void and not head["decoupled"]:
                response = Response(
                    response.number, error=RequestError("Unexpected empty response.", Code.INTERNAL)
                )
            told: dict[str, Any] = {"op": "reply", "call": call, "last": response.final}
            data: list[Any] = []
            if response.error is not None:
                told["error"] = [CODES.index(response.error.code), response.error.told(head["id"])]
            else:
                told["outputs"] = [[t.name, NUMBERS[t.datatype.wire], t.shape] for t in response.outputs]
                told["parameters"] = dict(response.parameters)
                data = [memoryview(tensor.data).cast("B") for tensor in response.outputs]
            child.tell(told, data)

        def infer() -> None:
            try:
                self._models.infer(head, buffers, receive)
            except RequestError as exc:
                receive(Response(0, error=exc))

        readiness = self._models.readiness(head)
        if readiness.settled:
            infer()
            return

        async def infer_if_ready() -> None:
            if await readiness.ask():
                infer()
            else:
                receive(Response(0, error=not_ready(head)))

        self._later(child, head, infer_if_ready())

    def _load(self, child: Child, head: Any, buffers: list[memoryview]) -> None:
        parameters: dict[str, str | bytes] = {"config": head["config"]} if head["config"] else {}
        parameters |= {name: bytes(data) for name, data in zip(head["files"], buffers, strict=True)}
        self._later(
            child, head, self._when_done(child, head, self._services.models.load(head["model"], parameters))
        )

    def _unload(self, child: Child, head: Any, buffers: list[memoryview]) -> None:
        unloading = self._services.models.unload(head["model"], dependents=head["dependents"])
        self._later(child, head, self._when_done(child, head, unloading))

    def _ready(self, child: Child, head: Any, buffers: list[memoryview]) -> None:
        try:
            version = self._services.models.find(head["model"], head["version"])
            readiness = READY if self._services.profile.legacy else version.readiness()
        except RequestError:
            readiness = DOWN
        except ValueError as exc:
            self._refuse(child, head, RequestError(str(exc)))
            return
        if readiness.settled:
            self._reply(child, head, {"ready": readiness.up})
            return

        async def tell() -> None:
            self._reply(child, head, {"ready": await readiness.ask()})

        self._later(child, head, tell())

    def _metric(self, child: Child, head: Any, buffers: list[memoryview]) -> None:
        try:
            told = self._metrics.take(head)
        except RequestError as exc:
            self._refuse(child, head, exc)
            return
        if told is not None:
            self._reply(child, head, told)

    async def _when_done(self, child: Child, head: Any, work: Coroutine[Any, Any, None]) -> None:
        await work
        self._reply(child, head, {})

    def _later(self, child: Child, head: Any, answering: Coroutine[Any, Any, None]) -> None:
        """Let an answer take its time; what goes wrong is the answer, too."""

        async def run() -> None:
            try:
                await answering
            except RequestError as exc:
                self._refuse(child, head, exc)
            except Exception as exc:  # noqa: BLE001 - the model waits for an answer, whatever went wrong
                _LOG.exception("%s: a call of the model failed", self._name)
                self._refuse(child, head, RequestError(f"{type(exc).__name__}: {exc}", Code.INTERNAL))

        task = self._services.loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _reply(self, child: Child, head: Any, told: dict[str, Any]) -> None:
        child.tell({"op": "reply", "call": head["call"], "last": True, **told})

    def _refuse(self, child: Child, head: Any, error: RequestError) -> None:
        text = f"Failed to process the request for model '{self._name}', message: {error.text}"
        self._reply(child, head, {"error": [CODES.index(error.code), text]})
