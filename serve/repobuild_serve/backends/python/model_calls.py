"""Requests of python models to other models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from repobuild_serve.backends.python.coding import DATATYPES
from repobuild_serve.config.settings import MICROSECOND
from repobuild_serve.core.model import ModelVersion
from repobuild_serve.core.services import Services
from repobuild_serve.core.ticket import Context, Response
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.wire.json_request import Given, ticket_of
from repobuild_serve.wire.plan import InferPlan

Receive = Callable[[Response], None]


class ModelCalls:
    """Turns the message of a request into a ticket and hands it to the model."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._plans: WeakKeyDictionary[ModelVersion, InferPlan] = WeakKeyDictionary()

    def infer(self, head: Any, buffers: list[memoryview], receive: Receive) -> None:
        """Make a request.

        Args:
            head: The message.
            buffers: Data of the inputs.
            receive: Called with each response.

        Raises:
            RequestError: The request cannot be made.
        """
        name = head["model"]
        try:
            version = self._version(head)
            plan = self._plan(version)
            given = [
                Given(tensor, DATATYPES[number], dims, data)
                for (tensor, number, dims), data in zip(head["inputs"], buffers, strict=True)
            ]
            wanted = tuple(head["outputs"]) or None
            context = Context(
                head["id"], wanted, head["parameters"], head["correlation"], head["flags"]
            )
            for output in wanted or ():
                if output not in plan.outputs_by_name:
                    raise RequestError(f"unexpected inference output '{output}' for model '{name}'")
            ticket = ticket_of(plan, given, context, timeout_ns=head["timeout"] * MICROSECOND)
        except RequestError as exc:
            raise RequestError(
                f"Model {name} - Error when running inference: {exc.told(head['id'])}", Code.INTERNAL
            ) from exc

        def pruned(response: Response) -> None:
            outputs = [tensor for tensor in response.outputs if wanted is None or tensor.name in wanted]
            receive(replace(response, outputs=outputs))

        self._services.calls.call(version, ticket, pruned)

    def _version(self, head: Any) -> ModelVersion:
        name, number = head["model"], head["version"]
        not_ready = RequestError(
            f"Failed for execute the inference request. Model '{name}' is not ready.", Code.INTERNAL
        )
        try:
            version = self._services.models.find(name, str(number) if number >= 0 else "")
        except RequestError as exc:
            raise not_ready from exc
        if not version.ready():
            raise not_ready
        if version.settings.decoupled and not head["decoupled"]:
            raise RequestError(
                f"Model {name} is using the decoupled. The current BLS request call doesn't support models using "
                "the decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or "
                "'async_exec' calls for decoupled models.'"
            )
        return version

    def _plan(self, version: ModelVersion) -> InferPlan:
        plan = self._plans.get(version)
        if plan is None:
            plan = self._plans[version] = InferPlan(version.settings, version.version, version.labels)
        return plan
