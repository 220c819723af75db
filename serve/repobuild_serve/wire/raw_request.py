"""Reading a raw binary request: a body that is one tensor and nothing else (Triton contract)."""

from __future__ import annotations

from math import prod

from repobuild_serve.core.ticket import Ticket
from repobuild_serve.errors import RequestError
from repobuild_serve.wire.checking import check_text
from repobuild_serve.wire.plan import Asked, InferPlan, Parsed
from repobuild_serve.wire.strings import pack


def read_raw_request(plan: InferPlan, body: bytes, arrived: int, size_limit: int) -> Parsed:
    """Read a body that is the only input's tensor; its shape follows from the config and the size.

    Args:
        plan: The model it is for.
        body: The tensor; for BYTES the one element, without a length word.
        arrived: ``time.monotonic_ns()`` at arrival.
        size_limit: Largest body in bytes.

    Raises:
        RequestError: The model has several inputs, or the size does not fit.
    """
    if len(body) > size_limit:
        raise RequestError(
            f"Raw input has a byte_size ({len(body)} bytes) that exceeds the maximum allowed value of "
            f"{size_limit} bytes. Use --http-max-input-size to increase the limit."
        )
    if len(plan.inputs) != 1:
        raise RequestError(
            f"Raw request must only have 1 input (found 1) to be deduced but got {len(plan.inputs)} "
            f"inputs in '{plan.name}' model configuration",
            tagged=True,
        )
    config = plan.settings.inputs[0]
    datatype = config.datatype
    lead = [1] if plan.settings.batched else []
    if not datatype.size:
        if config.dims != (1,):
            raise RequestError(
                f"For BYTE datatype raw input '{config.name}', the model must have input shape [1]",
                tagged=True,
            )
        shape = plan.shape(0, [*lead, 1])
        packed = pack([body])
        check_text(plan, config.name, packed)
        return Ticket(0, 1, arrived, [packed], [shape.dims], plan.key([shape])), Asked(wanted=plan.all_binary)
    fixed = prod(dim for dim in config.dims if dim != -1) * datatype.size
    if config.dims.count(-1) > 1:
        raise RequestError(
            f"The shape of the raw input '{config.name}' can not be deduced because there are more than one "
            "variable-sized dimension",
            tagged=True,
        )
    dims = [*lead, *(len(body) // fixed if dim == -1 else dim for dim in config.dims)]
    if prod(dims) * datatype.size != len(body):
        raise RequestError(
            f"input byte size mismatch for input 'raw_input' for model '{plan.name}'. "
            f"Expected {prod(dims) * datatype.size}, got {len(body)}",
            tagged=True,
        )
    shape = plan.shape(0, dims)
    return Ticket(0, shape.rows, arrived, [body], [shape.dims], plan.key([shape])), Asked(
        wanted=plan.all_binary
    )
