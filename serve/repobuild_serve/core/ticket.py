"""The one interface between front ends and model schedulers.

A front end turns a request into a ``Ticket`` and hands it to a model; the model hands ``Answer`` objects to
the sink it was made with. Both carry numbers, strings and buffers only, no connection and no callback, so
that a front end can live in another process than the models.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from repobuild_serve.datatypes import DataType
from repobuild_serve.errors import RequestError

if TYPE_CHECKING:
    from array import array

    import numpy as np

Buffer: TypeAlias = "bytes | memoryview | array[Any]"
"""A packed tensor, wherever its bytes lie."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A request that waits to be run. Not frozen only because frozen ones take three times as long to make.

    Attributes:
        number: The front end's own number; it comes back in the answer.
        rows: Rows of the batch this request fills; 1 for a model that does not batch.
        arrived: ``time.monotonic_ns()`` at arrival.
        inputs: One packed little-endian buffer per configured input, in config order; BYTES elements have a
            4-byte length in front.
        shapes: Shape of each input without the batch dim, in the same order.
        key: Requests of unequal keys must not share a batch; None where shapes are fixed.
        timeout_ns: Queue time-out that the client asked for; 0 is none.
    """

    number: int
    rows: int
    arrived: int
    inputs: Sequence[Buffer]
    shapes: Sequence[tuple[int, ...]]
    key: Hashable = None
    timeout_ns: int = 0


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
    """

    numbers: Sequence[int]
    rows: Sequence[int]
    outputs: Sequence[OutputTensor] = ()
    error: RequestError | None = None


Sink = Callable[[Answer], None]
"""Where a model delivers its answers; called on the event loop's thread."""
