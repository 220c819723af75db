"""Requests and responses as messages to and from a child process."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from repobuild_serve.config.settings import MICROSECOND, ModelSettings
from repobuild_serve.core.execution import fits, substitute
from repobuild_serve.core.ticket import NO_CONTEXT, Response, Tensor, Ticket
from repobuild_serve.datatypes import BY_WIRE_NAME, DataType
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.wire.strings import count_strings

_WIRE_NAMES = (
    "",
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "FP32",
    "FP64",
    "BYTES",
    "BF16",
)
NUMBERS = {name: number for number, name in enumerate(_WIRE_NAMES)}
CODES = (
    Code.UNKNOWN,
    Code.INTERNAL,
    Code.NOT_FOUND,
    Code.INVALID_ARG,
    Code.UNAVAILABLE,
    Code.UNSUPPORTED,
    Code.ALREADY_EXISTS,
    Code.CANCELLED,
)
"""Error code at the index that is its number in messages."""


def datatype_numbered(number: int) -> DataType:
    """The element type with this number in messages."""
    return BY_WIRE_NAME[_WIRE_NAMES[number]]


class Coding:
    """The form that requests and responses of one model have in messages."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._outputs = {item.name: item for item in settings.outputs}
        self.inputs = [[item.name, NUMBERS[item.datatype.wire]] for item in settings.inputs]
        self.outputs = list(self._outputs)

    def request(self, number: int, ticket: Ticket, buffers: list[Any]) -> list[Any]:
        """A request as part of a message.

        Args:
            number: What the child calls it.
            ticket: The request.
            buffers: Its data is appended here.
        """
        shapes: list[Any] = []
        lead = (ticket.rows,) if self._settings.batched else ()
        for item, buffer, dims in zip(self._settings.inputs, ticket.inputs, ticket.shapes, strict=True):
            if buffer is None or dims is None:
                shapes.append(None)
                continue
            if item.model_dims != item.dims:
                shapes.append([*lead, *substitute(item.dims, item.model_dims, dims)])
            else:
                shapes.append([*lead, *dims])
            buffers.append(buffer if isinstance(buffer, bytes) else memoryview(buffer).cast("B"))
        context, told = ticket.context, None
        if context is not NO_CONTEXT:
            told = [
                context.request_id,
                dict(context.parameters),
                context.correlation_id,
                context.flags,
                context.outputs,
            ]
        return [number, shapes, told, ticket.timeout_ns // MICROSECOND]

    def response(self, number: int, told: Any, buffers: list[memoryview], *, final: bool = True) -> Response:
        """A response out of a message.

        Args:
            number: The ticket's number.
            told: The response as it stands in the head; None for none.
            buffers: What is left of the message's data; that of the response is taken off the front.
            final: Whether it is the last one.
        """
        if told is None:
            return Response(number, final=final, void=True)
        if "e" in told:
            code, text = told["e"]
            return Response(number, error=RequestError(text, CODES[code], plain=True), final=final)
        entries = told["o"]
        data = buffers[: len(entries)]
        # Whatever is wrong with this response, the data of the next one is what follows.
        del buffers[: len(entries)]
        try:
            outputs = [self._tensor(entry, piece) for entry, piece in zip(entries, data, strict=True)]
        except RequestError as exc:
            return Response(number, error=exc, final=final)
        return Response(number, outputs, parameters=told.get("p", {}), final=final)

    def _tensor(self, entry: Sequence[Any], data: memoryview) -> Tensor:
        name, kind, shape = entry
        datatype = datatype_numbered(kind)
        if datatype.size:
            sound = prod(shape) * datatype.size == len(data)
        else:
            count, left, _ = count_strings(data)
            sound = count == prod(shape) and not left
        if not sound:
            raise RequestError(f"output '{name}' has shape {shape} and {len(data)} bytes", Code.INTERNAL)
        return Tensor(name, datatype, self._wire_shape(name, tuple(shape)), data)

    def _wire_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        item = self._outputs[name]
        if item.model_dims == item.dims:
            return shape
        lead, dims = (shape[:1], shape[1:]) if self._settings.batched else ((), shape)
        if not fits(dims, item.model_dims):
            return shape
        return (*lead, *substitute(item.model_dims, item.dims, dims))
