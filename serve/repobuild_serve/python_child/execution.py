"""Running one batch: from a message to requests, ``execute``, and from responses to a message."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any, Dict, List, Optional, Sequence, Tuple

from repobuild_serve.python_child.failures import BackendError, TritonModelException, told
from repobuild_serve.python_child.host import Host
from repobuild_serve.python_child.model import Model
from repobuild_serve.python_child.requests import InferenceRequest
from repobuild_serve.python_child.responses import FINAL, Exchange, InferenceResponse
from repobuild_serve.python_child.tensor import Tensor


class Executor:
    """Runs batches of one model.

    Args:
        host: The process.
        model: The model.
        instance: Instance name.
        inputs: Name and type number of every input, in config order.
        outputs: Name of every output.
        decoupled: Whether a request may get any number of responses.
    """

    def __init__(
        self,
        host: Host,
        model: Model,
        instance: str,
        inputs: Sequence[Tuple[str, int]],
        outputs: Sequence[str],
        *,
        decoupled: bool,
    ) -> None:
        self._host = host
        self._model = model
        self._instance = instance
        self._inputs = inputs
        self._outputs = frozenset(outputs)
        self._decoupled = decoupled

    def run(self, head: Dict[str, Any], buffers: List[memoryview]) -> None:
        """Run the batch of a message, and send what came of it."""
        began = time.monotonic_ns()
        results: List[Any] = []
        packed: List[Any] = []
        done: Dict[str, Any] = {"op": "done", "b": head["b"], "r": results}
        exchanges, requests = self._requests(head["r"], buffers)
        try:
            returned = self._model.execute(requests, decoupled=self._decoupled)
            done["t"] = [began, time.monotonic_ns()]
            if self._decoupled and isinstance(returned, Future):
                returned.add_done_callback(lambda future: self._background_done(future, exchanges))
            else:
                self._take(returned, exchanges, results, packed)
        except BaseException as exc:  # noqa: BLE001 - whatever the model raises is its batch's answer
            done.setdefault("t", [began, time.monotonic_ns()])
            done["error"] = self._failure(exc)
            results.clear()
            packed.clear()
            for exchange in exchanges:
                exchange.closed = True
        self._host.send(done, packed)

    def _failure(self, exc: BaseException) -> str:
        return f"Failed to process the request(s) for model '{self._instance}', message: {told(exc)}"

    def _requests(
        self, entries: List[Any], buffers: List[memoryview]
    ) -> Tuple[List[Exchange], List[InferenceRequest]]:
        exchanges: List[Exchange] = []
        requests: List[InferenceRequest] = []
        position = 0
        for number, shapes, context, timeout in entries:
            tensors: List[Tensor] = []
            for (name, kind), shape in zip(self._inputs, shapes):
                if shape is not None:
                    tensors.append(Tensor.received(name, kind, shape, buffers[position]))
                    position += 1
            wanted = self._outputs
            if context is not None:
                names: Optional[List[str]] = context.pop()
                wanted = frozenset(names) if names is not None else wanted
            exchange = Exchange(self._host, number, wanted, decoupled=self._decoupled)
            exchanges.append(exchange)
            requests.append(InferenceRequest.received(exchange, tensors, context, timeout))
        return exchanges, requests

    def _take(self, returned: Any, exchanges: List[Exchange], results: List[Any], packed: List[Any]) -> None:
        if self._decoupled:
            if returned is not None:
                raise BackendError(
                    f"Python model '{self._instance}' is using the decoupled mode and the execute "
                    "function must "
                    "return None."
                )
            return
        if returned is None:
            returned = [None] * len(exchanges)
        if not isinstance(returned, list):
            raise BackendError(f"Expected a list in the execute return, found type '{type(returned)}'.")
        if len(returned) != len(exchanges):
            raise BackendError(
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                f"InferenceRequest(s) size is:{len(exchanges)}, and InferenceResponse(s) size is:"
                f"{len(returned)}\n"
            )
        for exchange, response in zip(exchanges, returned):
            self._account(exchange, response)
        for exchange, response in zip(exchanges, returned):
            results.append(None if response is None else response.packed(exchange.wanted, packed))

    def _account(self, exchange: Exchange, response: Any) -> None:
        if response is None:
            if not (exchange.shared or exchange.closed):
                raise BackendError(
                    "The execute function returned no response to a request whose response sender was not "
                    "taken either."
                )
            return
        if not isinstance(response, InferenceResponse):
            raise BackendError(
                "Expected an 'InferenceResponse' object in the execute function return list, found type "
                f"'{type(response)}'."
            )
        try:
            exchange.count(response, FINAL)
        except TritonModelException as exc:
            raise BackendError(str(exc)) from exc

    def _background_done(self, future: Future[Any], exchanges: List[Exchange]) -> None:
        exc = future.exception()
        if exc is None:
            return
        text = self._failure(exc)
        for exchange in exchanges:
            exchange.fail(text)
