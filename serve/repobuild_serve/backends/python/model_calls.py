"""Requests of python models to other models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from repobuild_serve.backends.python.coding import datatype_numbered
from repobuild_serve.config.settings import MICROSECOND
from repobuild_serve.core.model import ModelVersion
from repobuild_serve.core.readiness import READY, Readiness
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
            raise _failed(head, exc) from exc

        def pruned(response: Response) -> None:
            outputs = [tensor for tensor in response.outputs if wanted is None or tensor.name in wanted]
            receive(replace(response, outputs=outputs))

        self._services.calls.call(version, ticket, pruned)

    def readiness(self, head: Any) -> Readiness:
        """Who must say yes before a request can be made; that its model is there is for ``infer`` to see.

        An instance that is lost does not keep the others from the request.
        """
        if self._services.profile.legacy:
            return READY
        try:
            return Readiness(True, self._find(head).readiness().checks)
        except RequestError:
            return READY

    def _find(self, head: Any) -> ModelVersion:
        number = head["version"]
        return self._services.models.find(head["model"], str(number) if number >= 0 else "")

    def _version(self, head: Any) -> ModelVersion:
        name = head["model"]
        try:
            version = self._find(head)
        except RequestError as exc:
            raise _not_ready(name) from exc
        if not version.ready():
            raise _not_ready(name)
        if version.settings.decoupled and not head["decoupled"]:
            raise RequestError(
                f"Model {name} is using the decoupled. The current BLS request call doesn't support models "
                "using the decoupled transaction policy. Please use 'decoupled=True' argument to "
                "the 'exec' or "
                "'async_exec' calls for decoupled models.'"
            )
        return version


def not_ready(head: Any) -> RequestError:
    """What the maker of a request is told whose model says that it is not ready."""
    return _failed(head, _not_ready(head["model"]))


def _not_ready(name: str) -> RequestError:
    text = f"Failed for execute the inference request. Model '{name}' is not ready."
    return RequestError(text, Code.INTERNAL)


def _failed(head: Any, error: RequestError) -> RequestError:
    text = f"Model {head['model']} - Error when running inference: {error.told(head['id'])}"
    return RequestError(text, Code.INTERNAL)


def _check_outputs(version: ModelVersion, names: Iterable[str]) -> None:
    for name in names:
        if name not in version.plan.outputs_by_name:
            raise RequestError(f"unexpected inference output '{name}' for model '{version.settings.name}'")
