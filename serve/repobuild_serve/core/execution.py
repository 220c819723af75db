"""Running one batch on one instance: buffers to arrays, the backend, arrays to checked outputs."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from repobuild_serve.backends.interface import Instance
from repobuild_serve.config.settings import ModelSettings, TensorConfig
from repobuild_serve.core.statistics import Timing
from repobuild_serve.core.ticket import Buffer, OutputTensor, Response, Ticket
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.wire.strings import pack_strings, unpack_strings

if TYPE_CHECKING:
    import numpy as np

_LOG = logging.getLogger(__name__)
_JOIN_UNLOCKS = 1 << 20
"""Bytes from which on CPython's ``bytes.join`` runs without the interpreter lock."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one execution, and when its stages were passed.

    Attributes:
        timing: Stages.
        outputs: Outputs of the whole batch.
        error: Why the whole batch failed.
        responses: For models that answer request by request: what is still to be sent, in place of the two.
    """

    timing: Timing
    outputs: Sequence[OutputTensor] = ()
    error: RequestError | None = None
    responses: Sequence[Response] | None = None


class Executor:
    """Executes batches of one model; holds no state between them, so that every instance may share it."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._batched = settings.batched

    def execute(
        self, instance: Instance, instance_name: str, tickets: Sequence[Ticket], rows: int
    ) -> Outcome:
        """Run ``tickets``, ``rows`` rows in all, as one batch; what goes wrong is in the outcome."""
        cpu = time.thread_time_ns()
        start = input_end = infer_end = time.monotonic_ns()
        outputs: Sequence[OutputTensor] = ()
        error: RequestError | None = None
        try:
            feed = {
                item.name: self._gather(index, item, tickets, rows)
                for index, item in enumerate(self._settings.inputs)
                if tickets[0].inputs[index] is not None
            }
            input_end = infer_end = time.monotonic_ns()
            arrays = instance.run(feed)
            infer_end = time.monotonic_ns()
            outputs = self._outputs(arrays, rows)
        except RequestError as exc:
            error = exc
        except Exception as exc:  # noqa: BLE001 - whatever a backend raises is its batch's answer; the server goes on
            name = self._settings.name
            _LOG.exception("model %s: instance %s failed on a batch of %d rows", name, instance_name, rows)
            text = f"Failed to process the request(s) for model '{instance_name}', message: "
            error = RequestError(f"{text}{type(exc).__name__}: {exc}", Code.INTERNAL, plain=True)
        end = time.monotonic_ns()
        return Outcome(Timing(start, input_end, infer_end, end, time.thread_time_ns() - cpu), outputs, error)

    def _gather(
        self, index: int, item: TensorConfig, tickets: Sequence[Ticket], rows: int
    ) -> np.ndarray[Any, Any]:
        import numpy as np

        dims = tickets[0].shapes[index]
        assert dims is not None
        if item.model_dims != item.dims:
            dims = substitute(item.dims, item.model_dims, dims)
        shape = (rows, *dims) if self._batched else dims
        if item.datatype.wire == "BYTES":
            elements: list[bytes] = []
            for buffer in _buffers(tickets, index):
                elements += unpack_strings(buffer)
            array = np.empty(len(elements), dtype=object)
            array[:] = elements
            return array.reshape(shape)
        packed = _packed(_buffers(tickets, index), prod(shape) * item.datatype.size)
        return np.frombuffer(packed, dtype=item.datatype.numpy).reshape(shape)

    def _outputs(self, arrays: Sequence[np.ndarray[Any, Any]], rows: int) -> list[OutputTensor]:
        wanted = self._settings.outputs
        if len(arrays) != len(wanted):
            raise _wrong(
                f"model '{self._settings.name}' returned {len(arrays)} outputs, expected {len(wanted)}"
            )
        return [self._output(item, array, rows) for item, array in zip(wanted, arrays, strict=True)]

    def _output(self, item: TensorConfig, array: np.ndarray[Any, Any], rows: int) -> OutputTensor:
        import numpy as np

        name = self._settings.name
        if self._batched:
            if array.ndim == 0 or array.shape[0] != rows:
                got = array.shape[0] if array.ndim else 0
                raise _wrong(
                    f"model '{name}' returned {got} rows for output '{item.name}' of a batch of {rows} rows"
                )
            dims = array.shape[1:]
        else:
            dims = array.shape
        if not fits(dims, item.model_dims):
            raise _wrong(
                f"model '{name}' returned shape {list(dims)} for output '{item.name}', "
                f"expected {list(item.model_dims)}"
            )
        if item.model_dims != item.dims:
            dims = substitute(item.model_dims, item.dims, dims)
        if item.datatype.wire == "BYTES":
            return OutputTensor(item.name, item.datatype, dims, None, pack_strings(array, rows))
        if array.dtype != item.datatype.numpy:
            raise _wrong(
                f"model '{name}' returned {array.dtype} for output '{item.name}', expected "
                f"{item.datatype.wire}"
            )
        width = array.size // rows if rows else 0
        return OutputTensor(item.name, item.datatype, dims, np.ascontiguousarray(array).reshape(rows, width))


def _buffers(tickets: Sequence[Ticket], index: int) -> list[Buffer]:
    # Requests that leave an input out never share a batch with others.
    return [buffer for ticket in tickets if (buffer := ticket.inputs[index]) is not None]


def _packed(buffers: Sequence[Buffer], size: int) -> bytes | memoryview:
    """The buffers one after the other, ``size`` bytes in all.

    A copy in any case: a slice of a request body may lie at any address, and models want aligned data.
    """
    if size < _JOIN_UNLOCKS:
        return b"".join(buffers)
    import numpy as np

    # Joining would let go of the interpreter lock, and the front end keep it for half a millisecond.
    packed = np.empty(size, dtype=np.uint8).data
    at = 0
    for buffer in buffers:
        view = memoryview(buffer)
        packed[at : at + view.nbytes] = view.cast("B")
        at += view.nbytes
    if at != size:
        raise ValueError(f"the inputs of a batch have {at} bytes, not {size}")
    return packed


def fits(dims: Sequence[int], pattern: Sequence[int]) -> bool:
    """Whether ``dims`` has the rank of ``pattern`` and equals it wherever that is not -1."""
    return tuple(dims) == tuple(pattern) or (
        len(dims) == len(pattern) and all(want in (-1, dim) for dim, want in zip(dims, pattern, strict=True))
    )


def substitute(source: Sequence[int], target: Sequence[int], actual: Sequence[int]) -> tuple[int, ...]:
    """Carry the variable dims of ``actual``, a shape of pattern ``source``, over to pattern ``target``."""
    variable = iter([dim for dim, want in zip(actual, source, strict=True) if want == -1])
    return tuple(next(variable) if want == -1 else want for want in target)


def _wrong(text: str) -> RequestError:
    _LOG.error("%s", text)
    return RequestError(text, Code.INTERNAL, plain=True)
