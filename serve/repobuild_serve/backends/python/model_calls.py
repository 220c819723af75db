"""Requests of python models to other models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from repobuild_serve.backends.python.coding import datatype_numbered
from repobuild_serve.config.settings import MICROSECOND
from repobuild_serve.core.model import ModelVersion
from repobuild_serve.core.services import Services
from repobuild_serve.core.ticket import Context, Response, Tensor
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.wire.checking import ticket_of

Receive = Callable[[Response], None]


class ModelCalls:
    """Turns the message of a request into a ticket and hands it to the model."""

    def __init__(self, services: Services) -> None:
        self._services = services

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
        wanted = tuple(head["outputs"]) or None
        try:
            version = self._version(head)
            given = [
                Tensor(tensor, datatype_numbered(number), tuple(dims), data)
                for (tensor, number, dims), data in zip(head["inputs"], buffers, strict=True)
            ]
            _check_outputs(version, wanted or ())
            ticket = ticket_of(
                version.plan,
                given,
                timeout_ns=head["timeout"] * MICROSECOND,
                context=Context(head["id"], wanted, head["parameters"], head["correlation"], head["flags"]),
            )
        except RequestError as exc:
            text = f"Model {name} - Error when running inference: {exc.told(head['id'])}"
            raise RequestError(text, Code.INTERNAL) from exc

        def pruned(response: Response) -> None:
            outputs = [tensor for tensor in response.outputs if wanted is None or tensor.name in wanted]
            receive(replace(response, outputs=outputs))

        self._services.calls.call(version, ticket, pruned)

    def _version(self, head: Any) -> ModelVersion:
        name, number = head["model"], head["version"]
        not_ready = f"Failed for execute the inference request. Model '{name}' is not ready."
        try:
            version = self._services.models.find(name, str(number) if number >= 0 else "")
        except RequestError as exc:
            raise RequestError(not_ready, Code.INTERNAL) from exc
        if not version.ready():
            raise RequestError(not_ready, Code.INTERNAL)
        if version.settings.decoupled and not head["decoupled"]:
            raise RequestError(
                f"Model {name} is using the decoupled. The current BLS request call doesn't support models "
                "using the decoupled transaction policy. Please use 'decoupled=True' argument to "
                "the 'exec' or "
                "'async_exec' calls for decoupled models.'"
            )
        return version


def _check_outputs(version: ModelVersion, names: Iterable[str]) -> None:
    for name in names:
        if name not in version.plan.outputs_by_name:
            raise RequestError(f"unexpected inference output '{name}' for model '{version.settings.name}'")
