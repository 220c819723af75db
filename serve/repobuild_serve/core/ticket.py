"""The one interface between front ends and what runs models.

A front end turns a request into a ``Ticket`` and hands it to a model. What comes of it goes to the sink the
model was started with: an ``Answer`` for a whole batch that ran as one, or ``Response`` objects for single
requests. All of these carry numbers, strings and buffers only, no connection and no callback, so that a front
end can live in another process than the models.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from repobuild_serve.core.statistics import Timing
from repobuild_serve.datatypes import DataType
from repobuild_serve.errors import RequestError

if TYPE_CHECKING:
    from array import array

    import numpy as np

Buffer: TypeAlias = "bytes | memoryview | array[Any]"
"""A packed tensor, wherever its bytes lie."""


Scalar: TypeAlias = "str | int | bool | float"
"""A request or response parameter."""
SEQUENCE_START = 1
SEQUENCE_END = 2


@dataclass(frozen=True, slots=True)
class Context:
    """What a request says beside its tensors. Only some models look at it.

    Attributes:
        request_id: The client's id; empty if none.
        outputs: Names of the outputs asked for, in the order asked; None for all.
        parameters: The client's own parameters, in request order.
        correlation_id: Id of the sequence the request belongs to; 0 or empty for none.
        flags: ``SEQUENCE_START`` and ``SEQUENCE_END``, or-ed.
    """

    request_id: str = ""
    outputs: tuple[str, ...] | None = None
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    correlation_id: int | str = 0
    flags: int = 0


NO_CONTEXT = Context()


@dataclass(slots=True, eq=False)
class Ticket:
    """A request that waits to be run. Not frozen only because frozen ones take three times as long to make.

    Attributes:
        number: The front end's own number; it comes back in the answer.
        rows: Rows of the batch this request fills; 1 for a model that does not batch.
        arrived: ``time.monotonic_ns()`` at arrival.
        inputs: One packed little-endian buffer per configured input, in config order; BYTES elements have a
            4-byte length in front. None for an optional input that was left out.
        shapes: Shape of each input without the batch dim, in the same order; None likewise.
        key: Requests of unequal keys must not share a batch; None where shapes are fixed.
        timeout_ns: Queue time-out that the client asked for; 0 is none.
        priority: Priority level that the client asked for; 0 is none.
        context: What else the request says.
        timing: Stages of its execution, once it has been run. The last response may come before that, if
            ``Sink.ran`` follows; who answers without an execution sets it, too.
    """

    number: int
    rows: int
    arrived: int
    inputs: Sequence[Buffer | None]
    shapes: Sequence[tuple[int, ...] | None]
    key: Hashable = None
    timeout_ns: int = 0
    priority: int = 0
    context: Context = NO_CONTEXT
    timing: Timing | None = None


@dataclass(frozen=True, slots=True)
class OutputTensor:
    """One output of a whole batch.

    Attributes:
        name: Tensor name.
        datatype: Element type.
        dims: Shape without the batch dim.
        array: C-contiguous array ``[rows, elements of a row]``; None for BYTES.
        strings: For BYTES, per row its packed elements, each with a 4-byte little-endian length in front.
    """

    name: str
    datatype: DataType
    dims: tuple[int, ...]
    array: np.ndarray[Any, Any] | None
    strings: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a batch: its outputs, or the error that every request of it gets.

    Attributes:
        numbers: Ticket numbers, in batch order.
        rows: Rows of each ticket; they follow one another in the outputs.
        outputs: Outputs of the whole batch, in config order; empty on error.
        error: Why there are no outputs.
        batched: Whether shapes on the wire start with a batch dim.
    """

    numbers: Sequence[int]
    rows: Sequence[int]
    outputs: Sequence[OutputTensor] = ()
    error: RequestError | None = None
    batched: bool = True


@dataclass(frozen=True, slots=True)
class Tensor:
    """One output of one request.

    Attributes:
        name: Tensor name.
        datatype: Element type.
        shape: Whole shape, with the batch dim.
        data: Packed little-endian elements, row-major; BYTES elements have a 4-byte length in front.
    """

    name: str
    datatype: DataType
    shape: tuple[int, ...]
    data: Buffer


@dataclass(frozen=True, slots=True)
class Response:
    """One response to one request; a decoupled model sends any number of them.

    Attributes:
        number: The ticket's number.
        outputs: Its outputs, in the order in which the model gave them.
        error: Why there are none.
        parameters: Response parameters that the model set.
        final: Whether no further response follows.
        void: Whether this is no response at all and only says that no further one follows.
    """

    number: int
    outputs: Sequence[Tensor] = ()
    error: RequestError | None = None
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    final: bool = True
    void: bool = False


class Sink(Protocol):
    """Where a model delivers; every method is called on the event loop's thread."""

    def deliver(self, answer: Answer) -> None:
        """Take what came of a batch; every request of it is then done."""
        ...

    def respond(self, response: Response) -> None:
        """Take one response to one request."""
        ...

    def ran(self, number: int, timing: Timing) -> None:
        """Learn what the execution of a request took, once it is over.

        Only models that answer request by request tell so, since their last response may come before that.
        """
        ...


def responses_of(answer: Answer) -> list[Response]:
    """The answer of a batch as one response for each of its requests."""
    if answer.error is not None:
        return [Response(number, error=answer.error) for number in answer.numbers]
    responses: list[Response] = []
    start = 0
    for number, rows in zip(answer.numbers, answer.rows, strict=True):
        stop = start + rows
        lead = (rows,) if answer.batched else ()
        tensors = [
            Tensor(
                output.name,
                output.datatype,
                (*lead, *output.dims),
                b"".join(output.strings[start:stop])
                if output.array is None
                else output.array[start:stop].tobytes(),
            )
            for output in answer.outputs
        ]
        responses.append(Response(number, tensors))
        start = stop
    return responses
