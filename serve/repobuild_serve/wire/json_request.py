"""Reading an inference request of any form, right or wrong (Triton contract, inference request)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from repobuild_serve.config.settings import MICROSECOND
from repobuild_serve.core.ticket import NO_CONTEXT, Buffer, Context, Ticket
from repobuild_serve.datatypes import BY_WIRE_NAME, DataType
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.wire.access import checked, member, optional
from repobuild_serve.wire.json_data import pack_json
from repobuild_serve.wire.json_text import load_json
from repobuild_serve.wire.parameters import (
    RequestParameters,
    json_output_refused,
    request_parameters,
    unknown_region,
    wanted_outputs,
)
from repobuild_serve.wire.plan import ALL_AS_JSON, Asked, BinaryLayout, InferPlan, Parsed, Shape, Wanted
from repobuild_serve.wire.raw_request import read_raw_request
from repobuild_serve.wire.strings import count_strings

_SOURCES = "'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'"


@dataclass(slots=True)
class _Item:
    """One entry of ``inputs`` as it was read, before it is compared with the model."""

    name: str
    datatype: DataType
    dims: list[int]
    buffer: Buffer
    span: tuple[int, int] | None


@dataclass(slots=True)
class Reading:
    """A request being read.

    Attributes:
        arrived: ``time.monotonic_ns()`` at its arrival.
        request_id: The client's id, as soon as the text has been parsed.
    """

    arrived: int
    request_id: str = ""


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
        _check_size(len(body), size_limit)
        return read_raw_request(plan, body, reading.arrived)
    header = body if header_length is None else body[:header_length]
    _check_size(len(header), size_limit)
    document = load_json(header)
    if not isinstance(document, dict):
        raise RequestError(
            "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'", Code.INTERNAL
        )
    reading.request_id = request_id = optional(document, "id", "string", "")
    parameters = request_parameters(document)
    tail = memoryview(body)[len(header) :]
    items, used = _read_items(member(document, "inputs", "array"), plan, tail)
    if used != len(tail):
        raise RequestError(f"unexpected additional input data for model '{plan.name}'")
    wanted = wanted_outputs(document, plan, binary=parameters.binary_output)
    if wanted is None:
        _check_json_outputs(plan)
    ordered, shapes = _check_against_model(plan, items)
    context = _context(document, request_id, parameters, wanted)
    asked = ALL_AS_JSON if wanted is None and context is NO_CONTEXT else Asked(context, wanted)
    ticket = Ticket(
        number=0,
        rows=next((shape.rows for shape in shapes if shape is not None), 1),
        arrived=reading.arrived,
        inputs=[item.buffer if item is not None else None for item in ordered],
        shapes=[shape.dims if shape is not None else None for shape in shapes],
        key=plan.key(shapes),
        timeout_ns=parameters.timeout_us * MICROSECOND,
        priority=parameters.priority,
        context=context,
    )
    spans = [item.span for item in ordered if item and item.span is not None and item.datatype.size]
    if header_length and len(spans) == len(ordered):
        layout = BinaryLayout(
            ticket.rows,
            ticket.shapes,
            ticket.key,
            ticket.timeout_ns,
            ticket.priority,
            asked,
            spans,
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


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise RequestError(
            f"Request JSON size of {size} bytes exceeds the maximum allowed value of {limit} bytes. "
            "Use --http-max-input-size to increase the limit."
        )


def _read_items(inputs: list[Any], plan: InferPlan, tail: memoryview) -> tuple[list[_Item], int]:
    items: list[_Item] = []
    seen: set[str] = set()
    position = 0
    for entry in inputs:
        name = member(entry, "name", "string")
        wire = member(entry, "datatype", "string")
        dims = [checked(dim, "shape", "unsigned-integer") for dim in member(entry, "shape", "array")]
        datatype = BY_WIRE_NAME.get(wire)
        if datatype is None:
            raise RequestError(f"invalid datatype for input {name}")
        size, region = _source(entry)
        if name in seen:
            raise RequestError(f"input '{name}' already exists in request", tagged=True)
        seen.add(name)
        if region is not None:
            raise unknown_region(region)
        if any(dim >= 1 << 63 for dim in dims):
            raise RequestError(f"unexpected shape for input '{name}' for model '{plan.name}'", tagged=True)
        if size is None:
            buffer: Buffer = pack_json(entry["data"], datatype, prod(dims), name, plan.name)
            items.append(_Item(name, datatype, dims, buffer, None))
            continue
        if position + size > len(tail):
            missing = position + size - len(tail)
            raise RequestError(
                f"unexpected size for input '{name}', expecting {missing} additional bytes for model "
                f"'{plan.name}'"
            )
        items.append(
            _Item(name, datatype, dims, tail[position : position + size], (position, position + size))
        )
        position += size
    return items, position


def _source(entry: dict[str, Any]) -> tuple[int | None, Any]:
    """The size of a binary blob or the region of shared memory; exactly one source of data is set."""
    parameters = entry.get("parameters", {})
    if not isinstance(parameters, dict):
        raise RequestError(
            "failed to get request params.: attempt to get members for non-object", Code.INTERNAL
        )
    size = optional(parameters, "binary_data_size", "unsigned-integer", None)
    region = parameters.get("shared_memory_region")
    given = [
        label
        for label, present in (
            ("'data'", "data" in entry),
            ("'binary_data_size'", size is not None),
            ("'shared_memory_region'", region is not None),
        )
        if present
    ]
    if len(given) != 1:
        what = "no field is set" if not given else "set " + " ".join(given)
        raise RequestError(f"Input must set only one of the following fields: {_SOURCES}. But {what}")
    return size, region


def _check_json_outputs(plan: InferPlan) -> None:
    for output in plan.settings.outputs:
        if output.datatype.wire in {"FP16", "BF16"}:
            raise json_output_refused(output.datatype.wire)


def _check_against_model(
    plan: InferPlan, items: Sequence[_Item]
) -> tuple[list[_Item | None], list[Shape | None]]:
    by_name = {item.name: item for item in items}
    _check_names(plan, by_name)
    ordered = [by_name.get(name) for name in plan.inputs_by_name]
    for item, config in zip(ordered, plan.settings.inputs, strict=True):
        if item is not None and item.datatype is not config.datatype:
            raise RequestError(
                f"inference input '{item.name}' data-type is '{item.datatype.wire}', but model '{plan.name}' "
                f"expects '{config.datatype.wire}'",
                tagged=True,
            )
    if plan.settings.batched:
        _check_batch(plan, [item for item in ordered if item is not None])
    shapes = [
        plan.shape(index, item.dims) if item is not None else None for index, item in enumerate(ordered)
    ]
    for item, shape in zip(ordered, shapes, strict=True):
        if item is not None and shape is not None:
            _check_content(plan, item, shape)
    return ordered, shapes


def _check_names(plan: InferPlan, given: dict[str, _Item]) -> None:
    expected = plan.inputs_by_name
    required = [item.name for item in plan.settings.inputs if not item.optional]
    if not len(required) <= len(given) <= len(expected):
        missing = [name for name in required if name not in given]
        listed = "[" + ",".join(f"'{name}'" for name in missing) + "]" if missing else " ]"
        got = "[" + ",".join(f"'{name}'" for name in given) + "]" if given else "[]"
        wanted = (
            f"{len(expected)} inputs"
            if len(required) == len(expected)
            else f"number of inputs between {len(required)} and {len(expected)}"
        )
        raise RequestError(
            f"expected {wanted} but got {len(given)} inputs for model '{plan.name}'. Got input(s) {got}, "
            f"but missing required input(s) {listed}. Please provide all required input(s).",
            tagged=True,
        )
    for name in given:
        if name not in expected:
            raise RequestError(f"unexpected inference input '{name}' for model '{plan.name}'")
    for name in required:
        if name not in given:
            raise RequestError(f"input '{name}' is missing from the request for model '{plan.name}'")


def _check_batch(plan: InferPlan, items: Sequence[_Item]) -> None:
    first = items[0].dims[0] if items and items[0].dims else None
    for item in items[1:]:
        if (item.dims[0] if item.dims else None) != first:
            raise RequestError(
                f"input '{item.name}' batch size does not match other inputs for '{plan.name}'", tagged=True
            )


def _check_content(plan: InferPlan, item: _Item, shape: Shape) -> None:
    if item.datatype.size:
        got = len(item.buffer)
        if got != shape.size:
            raise RequestError(
                f"input byte size mismatch for input '{item.name}' for model '{plan.name}'. "
                f"Expected {shape.size}, got {got}",
                tagged=True,
            )
        return
    count, left, announced = count_strings(item.buffer)
    if left and announced < 0:
        raise RequestError(
            f"incomplete string length indicator for inference input '{item.name}' for model '{plan.name}', "
            f"expecting 4 bytes but only {left} bytes available. Please make sure the string length "
            "indicator is "
            "in one buffer.",
            tagged=True,
        )
    if announced >= 0 and (left or announced):
        raise RequestError(
            f"incomplete string data for inference input '{item.name}', expecting string of length "
            f"{announced} "
            f"but only {left} bytes available",
            plain=True,
        )
    if count < shape.count:
        raise RequestError(
            f"expected {shape.count} string elements for inference input '{item.name}' for model "
            f"'{plan.name}', "
            f"got {count}",
            tagged=True,
        )
    if count > shape.count:
        raise RequestError(
            f"unexpected number of string elements {count} for inference input '{item.name}' for model "
            f"'{plan.name}', expecting {shape.count}",
            tagged=True,
        )
