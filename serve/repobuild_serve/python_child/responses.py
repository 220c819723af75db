"""``InferenceResponse``, ``TritonError``, and what sends responses."""

from __future__ import annotations

import enum
import json
import threading
from typing import Any, Dict, FrozenSet, List, Optional, Sequence

from repobuild_serve.python_child.failures import TritonModelException
from repobuild_serve.python_child.tensor import Tensor

FINAL = 1


class ErrorCode(enum.IntEnum):
    """What kind of error it is."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    def __str__(self) -> str:
        return f"__ErrorCode.{self.name}"


# As they are shown by Triton.
ErrorCode.__name__ = ErrorCode.__qualname__ = "__ErrorCode"


class TritonError:
    """An error that one request is answered with.

    Args:
        message: Its text.
        code: One of the class's own numbers.
    """

    UNKNOWN = ErrorCode.UNKNOWN
    INTERNAL = ErrorCode.INTERNAL
    NOT_FOUND = ErrorCode.NOT_FOUND
    INVALID_ARG = ErrorCode.INVALID_ARG
    UNAVAILABLE = ErrorCode.UNAVAILABLE
    UNSUPPORTED = ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = ErrorCode.ALREADY_EXISTS
    CANCELLED = ErrorCode.CANCELLED

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        if not isinstance(message, str) or not isinstance(code, int):
            raise TypeError(
                f"TritonError(message, code) takes a str and a code, not {type(message).__name__} and "
                f"{type(code).__name__}"
            )
        if code not in list(ErrorCode):
            raise TypeError(f"TritonError has no code {code}")
        self._message = message
        self._code = ErrorCode(code)

    def message(self) -> str:
        """Its text."""
        return self._message

    def code(self) -> ErrorCode:
        """Its number."""
        return self._code


class InferenceResponse:
    """What a request is answered with.

    Args:
        output_tensors: The outputs.
        error: The error that it is answered with in their place.
        parameters: Response parameters: texts, integers and booleans by name.
    """

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: Optional[TritonError] = None,
        parameters: Optional[Dict[str, Any]] = None,
    ) -> None:
        tensors = list(output_tensors)
        for tensor in tensors:
            if tensor is None:
                raise TritonModelException("Output tensor for inference response should not be empty.")
            if not isinstance(tensor, Tensor):
                raise TypeError(f"an output must be a Tensor, not {type(tensor).__name__}")
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"the error must be a TritonError, not {type(error).__name__}")
        self._tensors = tensors
        self._error = error
        self._parameters = checked_parameters(parameters)

    def output_tensors(self) -> List[Tensor]:
        """The outputs."""
        return self._tensors

    def has_error(self) -> bool:
        """Whether it is an error."""
        return self._error is not None

    def error(self) -> Optional[TritonError]:
        """The error; None if it is none."""
        return self._error

    def parameters(self) -> str:
        """The response parameters as JSON."""
        return json.dumps(self._parameters)

    def packed(self, wanted: FrozenSet[str], buffers: List[Any]) -> Dict[str, Any]:
        """Itself as part of a message.

        Args:
            wanted: Names of the outputs that are sent.
            buffers: Its data is appended here.
        """
        if self._error is not None:
            return {"e": [self._error.code(), self._error.message()]}
        outputs = []
        for tensor in self._tensors:
            if tensor.name() in wanted:
                outputs.append([tensor.name(), tensor.triton_dtype(), tensor.shape()])
                buffers.append(tensor.buffer())
        return {"o": outputs, "p": self._parameters} if self._parameters else {"o": outputs}


def checked_parameters(parameters: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """A copy of parameters that a model gave.

    Raises:
        TritonModelException: Something in it cannot be a parameter.
    """
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise TritonModelException("Parameters must be a dictionary.")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(
                "Expect parameters keys to have type str, found type " + str(type(key))
            )
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(
                "Expect parameters values to have type bool/int/str, found type " + str(type(value))
            )
    return dict(parameters)


class Exchange:
    """The responses to one request, which its sender and the return value of ``execute`` share.

    Args:
        host: The process.
        number: The request's number.
        wanted: Outputs that it asks for.
        decoupled: Whether it may be answered more than once.
    """

    def __init__(self, host: Any, number: int, wanted: FrozenSet[str], *, decoupled: bool) -> None:
        self._host = host
        self.number = number
        self.wanted = wanted
        self.shared = False
        self._decoupled = decoupled
        self._sent = 0
        self._lock = threading.Lock()
        self.closed = False

    def count(self, response: Optional[InferenceResponse], flags: int) -> None:
        """Note a response that is about to be sent.

        Raises:
            TritonModelException: It may not be.
        """
        with self._lock:
            if not self._decoupled:
                if response is not None and self._sent:
                    raise TritonModelException(
                        "Unable to send response. Non-decoupled model cannot send more than one response."
                    )
                if response is None and flags == FINAL and not self._sent:
                    raise TritonModelException(
                        "Unable to send response. Non-decoupled model cannot send complete final before "
                        "sending a response."
                    )
            if self.closed:
                raise TritonModelException("Unable to send response. Response sender has been closed.")
            self.closed = flags == FINAL
            self._sent += 1

    def send(self, response: Optional[InferenceResponse], flags: int) -> None:
        """Send a response out of turn."""
        if flags not in (0, FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and not flags:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(f"send takes an InferenceResponse, not {type(response).__name__}")
        self.count(response, flags)
        if response is None and not self._decoupled:
            return  # the one response, which went before, was the last for the server
        buffers: List[Any] = []
        head: Dict[str, Any] = {
            "op": "respond",
            "n": self.number,
            "final": flags == FINAL or not self._decoupled,
        }
        if response is not None:
            head["r"] = response.packed(self.wanted, buffers)
        self._host.send(head, buffers)

    def fail(self, text: str) -> None:
        """Answer with an error, unless the last response has been sent."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
        self._host.send({"op": "respond", "n": self.number, "final": True, "r": {"e": [1, text]}})

    def __del__(self) -> None:
        # Nobody can answer the request any more, which would else stay in flight for ever.
        if not self.closed:
            self._host.defer({"op": "dropped", "n": self.number})


class InferenceResponseSender:
    """Sends responses at any time, from any thread."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def send(self, response: Optional[InferenceResponse] = None, flags: int = 0) -> None:
        """Send a response, or say with ``flags=TRITONSERVER_RESPONSE_COMPLETE_FINAL`` that none follows.

        Raises:
            TritonModelException: The response may not be sent, as the last one has been.
        """
        self._exchange.send(response, flags)

    def is_cancelled(self) -> bool:
        """Whether the client gave the request up, which this server does not find out."""
        return False
