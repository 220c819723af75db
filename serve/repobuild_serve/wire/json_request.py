"""Reading an inference request of any form, right or wrong (Triton contract, inference request)."""

from __future__ import annotations

from typing import Any

from repobuild_serve.config.settings import MICROSECOND
from repobuild_serve.core.ticket import NO_CONTEXT, Buffer, Context, Tensor, Ticket
from repobuild_serve.datatypes import BY_WIRE_NAME
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.wire.access import checked, member, optional
from repobuild_serve.wire.checking import ticket_of
from repobuild_serve.wire.json_data import pack_json
from repobuild_serve.wire.json_text import load_json
from repobuild_serve.wire.parameters import (
    RequestParameters,
    json_output_refused,
    request_parameters,
    unknown_region,
    wanted_outputs,
)
from repobuild_serve.wire.plan import (
    ALL_AS_JSON,
    Asked,
    BinaryLayout,
    InferPlan,
    Parsed,
    Wanted,
    element_count,
)
from repobuild_serve.wire.raw_request import read_raw_request
from repobuild_serve.wire.reading import Reading, check_json_size

_SOURCES = "'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'"


def read_request(
    plan: InferPlan, body: bytes, header_length: int | None, reading: Reading, size_limit: int
) -> Parsed:
    """Read an inference request.

    Args:
        plan: The model it is for.
        body: The whole uncompressed body.
        header_length: Length of the JSON part; None if the header was absent and all of the body is JSON; 0
            for a raw binary request.
        reading: Knows when the request arrived; gets the request id, so that errors can name it.
        size_limit: Largest JSON part or raw body in bytes.

    Raises:
        RequestError: Any of E6 to E35 of the Triton contract.
    """
    if header_length == 0 or not body:
        return read_raw_request(plan, body, reading.arrived, size_limit)
    header = body if header_length is None else body[:header_length]
    check_json_size(len(header), size_limit)
    document = load_json(header)
    if not isinstance(document, dict):
        raise RequestError(
            "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'", Code.INTERNAL
        )
    reading.request_id = request_id = optional(document, "id", "string", "")
    parameters = request_parameters(document)
    tail = memoryview(body)[len(header) :]
    items, spans, used = _read_items(member(document, "inputs", "array"), plan, tail, legacy=reading.legacy)
    if used != len(tail):
        raise RequestError(f"unexpected additional input data for model '{plan.name}'")
    wanted = wanted_outputs(document, plan, binary=parameters.binary_output, legacy=reading.legacy)
    if wanted is None:
        _check_json_outputs(plan)
    context = _context(document, request_id, parameters, wanted)
    asked = ALL_AS_JSON if wanted is None and context is NO_CONTEXT else Asked(context, wanted)
    ticket = ticket_of(
        plan,
        items,
        arrived=reading.arrived,
        timeout_ns=parameters.timeout_us * MICROSECOND,
        priority=parameters.priority,
        context=context,
    )
    if header_length and len(spans) == len(plan.inputs):
        layout = BinaryLayout(
            ticket.rows,
            ticket.shapes,
            ticket.key,
            ticket.timeout_ns,
            ticket.priority,
            asked,
            [spans[name] for name in plan.inputs_by_name],
            len(tail),
        )
        plan.remember_layout(bytes(header), layout)
    return ticket, asked


def _context(
    document: dict[str, Any],
    request_id: str,
    parameters: RequestParameters,
    wanted: tuple[Wanted, ...] | None,
) -> Context:
    named = document.get("outputs") if wanted is not None else None
    if not (request_id or named or parameters.own or parameters.correlation_id or parameters.flags):
        return NO_CONTEXT
    return Context(
        request_id,
        tuple(item["name"] for item in named) if named else None,
        parameters.own,
        parameters.correlation_id,
        parameters.flags,
    )


def read_known_layout(layout: BinaryLayout, body: bytes, header_length: int, arrived: int) -> Parsed | None:
    """Read a binary request whose JSON part was met before; None if its blobs have another length."""
    if len(body) - header_length != layout.tail:
        return None
    inputs = [body[header_length + start : header_length + stop] for start, stop in layout.spans]
    return (
        Ticket(
            0,
            layout.rows,
            arrived,
            inputs,
            layout.shapes,
            layout.key,
            layout.timeout_ns,
            layout.priority,
            layout.asked.context,
        ),
        layout.asked,
    )


def _read_items(
    inputs: list[Any], plan: InferPlan, tail: memoryview, *, legacy: bool
) -> tuple[list[Tensor], dict[str, tuple[int, int]], int]:
    """The inputs, where the blobs of those of fixed size lie, and the bytes of ``tail`` that are used."""
    items: list[Tensor] = []
    spans: dict[str, tuple[int, int]] = {}
    seen: set[str] = set()
    position = 0
    for entry in inputs:
        size, region = _source(entry)
        name = member(entry, "name", "string")
        wire = member(entry, "datatype", "string")
        dims = [checked(dim, "shape", "unsigned-integer") for dim in member(entry, "shape", "array")]
        datatype = BY_WIRE_NAME.get(wire)
        if datatype is None:
            raise RequestError(f"invalid datatype for input {name}")
        if name in seen:
            raise RequestError(f"input '{name}' already exists in request", tagged=True)
        seen.add(name)
        if region is not None:
            raise unknown_region(region)
        if any(dim >= 1 << 63 for dim in dims):
            raise RequestError(f"unexpected shape for input '{name}' for model '{plan.name}'", tagged=True)
        if size is None:
            count = element_count(name, dims, max(1, datatype.size))
            buffer: Buffer = pack_json(entry["data"], datatype, count, name, plan.name, legacy=legacy)
            items.append(Tensor(name, datatype, tuple(dims), buffer))
            continue
        if position + size > len(tail):
            missing = position + size - len(tail)
            raise RequestError(
                f"unexpected size for input '{name}', expecting {missing} additional bytes for model "
                f"'{plan.name}'"
            )
        items.append(Tensor(name, datatype, tuple(dims), tail[position : position + size]))
        if datatype.size:
            spans[name] = (position, position + size)
        position += size
    return items, spans, position


def _source(entry: Any) -> tuple[int | None, Any]:
    """The size of a binary blob or the region of shared memory; exactly one source of data is set."""
    members = entry if isinstance(entry, dict) else {}
    parameters = members.get("parameters")
    if not isinstance(parameters, dict):
        # Passed over, as with Triton.
        parameters = {}
    given = [
        f"'{key}'"
        for key, holder in (
            ("data", members),
            ("binary_data_size", parameters),
            ("shared_memory_region", parameters),
        )
        if key in holder
    ]
    if len(given) != 1:
        what = "no field is set" if not given else "set " + " ".join(given)
        raise RequestError(f"Input must set only one of the following fields: {_SOURCES}. But {what}")
    size = optional(parameters, "binary_data_size", "unsigned-integer", None)
    return size, parameters.get("shared_memory_region")


def _check_json_outputs(plan: InferPlan) -> None:
    for output in plan.settings.outputs:
        if output.datatype.wire in {"FP16", "BF16"}:
            raise json_output_refused(output.datatype.wire)
