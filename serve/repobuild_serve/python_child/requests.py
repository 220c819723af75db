"""``triton_python_backend_utils.InferenceRequest``: what a model is asked, and what it asks other models."""

from __future__ import annotations

import asyncio
import json
import operator
from typing import Any, Dict, FrozenSet, Iterable, List, Optional, Sequence, Set, Union

from repobuild_serve.python_child import current
from repobuild_serve.python_child.calls import infer
from repobuild_serve.python_child.failures import TritonModelException
from repobuild_serve.python_child.responses import Exchange, InferenceResponseSender, checked_parameters
from repobuild_serve.python_child.tensor import Tensor

RELEASE_ALL = 1
RELEASE_RESCHEDULE = 2


class InferenceTrace:
    """The trace a request belongs to; this server has none."""

    def get_context(self) -> Optional[str]:
        """The trace context; None."""
        return None


class PreferredMemory:
    """Where a model would like to have the outputs of a request that it makes; all are in main memory.

    Args:
        preferred_memory_type: ``TRITONSERVER_MEMORY_CPU`` or ``TRITONSERVER_MEMORY_GPU``.
        preferred_device_id: Number of the GPU.
    """

    def __init__(self, preferred_memory_type: int, preferred_device_id: int = 0) -> None:
        self.preferred_memory_type = preferred_memory_type
        self.preferred_device_id = preferred_device_id


class InferenceRequest:
    """A request.

    Args:
        request_id: Its id.
        correlation_id: Id of its sequence; a number or a text.
        inputs: Its inputs.
        requested_output_names: Outputs that are wanted; empty for all.
        model_name: The model that is asked.
        model_version: Its version; -1 for the highest.
        flags: Sequence flags.
        timeout: Queue time-out in microseconds; 0 is none.
        preferred_memory: Has no effect here.
        trace: Has no effect here.
        parameters: Texts, integers and booleans by name.
    """

    def __init__(
        self,
        request_id: str = "",
        correlation_id: Union[int, str] = 0,
        inputs: Optional[Sequence[Tensor]] = None,
        requested_output_names: Optional[Iterable[str]] = None,
        model_name: Optional[str] = None,
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: Optional[PreferredMemory] = None,
        trace: Optional[InferenceTrace] = None,
        parameters: Optional[Dict[str, Any]] = None,
    ) -> None:
        if inputs is None or requested_output_names is None or model_name is None:
            raise TypeError("InferenceRequest needs inputs, requested_output_names and model_name")
        if isinstance(correlation_id, bool) or not isinstance(correlation_id, (int, str)):
            raise TritonModelException("Correlation ID must be integer or string")
        for what, text in (("request_id", request_id), ("model_name", model_name)):
            if not isinstance(text, str):
                raise TypeError(f"{what} must be a str, not {type(text).__name__}")
        if isinstance(requested_output_names, (str, bytes)):
            raise TypeError("requested_output_names must be a list of names, not one name")
        names = list(requested_output_names)
        for tensor in inputs:
            if tensor is None:
                raise TritonModelException(
                    f"Input tensor for request with id '{request_id}' and model name '{model_name}' "
                    "should not "
                    "be empty."
                )
            if not isinstance(tensor, Tensor):
                raise TypeError(f"an input must be a Tensor, not {type(tensor).__name__}")
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"an output name must be a str, not {type(name).__name__}")
            if not name:
                raise TritonModelException(
                    f"Requested output name for request with id '{request_id}' and model name '{model_name}' "
                    "should not be empty."
                )
        self._id = request_id
        self._correlation_id = correlation_id
        self._inputs: List[Tensor] = list(inputs)
        self._names: FrozenSet[str] = frozenset(names)
        self._model = model_name
        self._version = _whole("model_version", model_version)
        self._flags = _whole("flags", flags)
        self._timeout = _whole("timeout", timeout)
        self._preferred_memory = preferred_memory
        self._trace = trace or InferenceTrace()
        self._parameters = checked_parameters(parameters)
        self._exchange: Optional[Exchange] = None
        self._sender: Optional[InferenceResponseSender] = None

    @classmethod
    def received(
        cls, exchange: Exchange, inputs: List[Tensor], context: Optional[List[Any]], timeout: int
    ) -> InferenceRequest:
        """A request that came from the server.

        Args:
            exchange: Takes its responses.
            inputs: Its inputs.
            context: Request id, parameters, correlation id and flags; None if all are at their defaults.
            timeout: Queue time-out in microseconds.
        """
        request = cls.__new__(cls)
        request._receive(exchange, inputs, context, timeout)  # noqa: SLF001 - in place of __init__
        return request

    def _receive(
        self, exchange: Exchange, inputs: List[Tensor], context: Optional[List[Any]], timeout: int
    ) -> None:
        self._id, self._parameters, self._correlation_id, self._flags = context or ("", {}, 0, 0)
        self._inputs = inputs
        self._names = exchange.wanted
        self._model = ""
        self._version = -1
        self._timeout = timeout
        self._preferred_memory = None
        self._trace = InferenceTrace()
        self._exchange = exchange
        self._sender = None

    def inputs(self) -> List[Tensor]:
        """Its inputs, those that were left out missing."""
        return self._inputs

    def request_id(self) -> str:
        """Its id; empty if none."""
        return self._id

    def correlation_id(self) -> Union[int, str]:
        """Id of its sequence; 0 or empty if none."""
        return self._correlation_id

    def requested_output_names(self) -> Set[str]:
        """Names of the outputs that are wanted."""
        return set(self._names)

    def parameters(self) -> str:
        """Its parameters as JSON."""
        if self._exchange is None:
            return json.dumps(self._parameters)
        return json.dumps(self._parameters, ensure_ascii=False, separators=(",", ":"))

    def flags(self) -> int:
        """Sequence flags."""
        return self._flags

    def set_flags(self, flags: int) -> None:
        """Set the sequence flags, of a request to another model."""
        self._flags = _whole("flags", flags)

    def timeout(self) -> int:
        """Queue time-out in microseconds that it asked for; 0 if none."""
        return self._timeout

    def trace(self) -> InferenceTrace:
        """Its trace."""
        return self._trace

    def is_cancelled(self) -> bool:
        """Whether the client gave it up, which this server does not find out."""
        return False

    def get_response_sender(self) -> InferenceResponseSender:
        """What sends responses to it.

        Raises:
            TritonModelException: It is a request to another model.
        """
        if self._exchange is None:
            raise TritonModelException("a request that a model makes itself has no response sender")
        if self._sender is None:
            self._exchange.shared = True
            self._sender = InferenceResponseSender(self._exchange)
        return self._sender

    def set_release_flags(self, flags: int) -> None:
        """Say what becomes of the request when ``execute`` returns.

        Raises:
            TritonModelException: It is to be rescheduled, which this server does not do.
        """
        if flags != RELEASE_ALL:
            raise TritonModelException("rescheduling of requests is not supported by this server")

    def exec(self, decoupled: bool = False) -> Any:
        """Ask the model, and wait.

        Returns:
            Its response; with ``decoupled``, an iterator over its responses.
        """
        return infer(current.host(), self, decoupled=decoupled)

    def async_exec(self, decoupled: bool = False) -> Any:
        """Like ``exec``, to be awaited in a running event loop."""
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(None, lambda: self.exec(decoupled))

    def packed(self, buffers: List[Any]) -> Dict[str, Any]:
        """Itself as part of a message.

        Args:
            buffers: The data of its inputs is appended here.
        """
        inputs = []
        for tensor in self._inputs:
            inputs.append([tensor.name(), tensor.triton_dtype(), tensor.shape()])
            buffers.append(tensor.buffer())
        return {
            "model": self._model,
            "version": self._version,
            "id": self._id,
            "correlation": self._correlation_id,
            "flags": self._flags,
            "timeout": self._timeout,
            "parameters": self._parameters,
            "outputs": sorted(self._names),
            "inputs": inputs,
        }


def _whole(what: str, value: Any) -> int:
    """An integer of any kind, NumPy's among them, as Python's own.

    Raises:
        TypeError: It is none.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an int, not {type(value).__name__}") from None
