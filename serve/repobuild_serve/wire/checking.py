"""The inputs of a request against what its model takes (Triton contract, inference request)."""

from __future__ import annotations

from collections.abc import Sequence

from repobuild_serve.core.ticket import NO_CONTEXT, Buffer, Context, Tensor, Ticket
from repobuild_serve.errors import RequestError
from repobuild_serve.wire.plan import InferPlan, Shape
from repobuild_serve.wire.strings import count_strings, not_text, unpack_strings


def ticket_of(
    plan: InferPlan,
    inputs: Sequence[Tensor],
    *,
    arrived: int = 0,
    timeout_ns: int = 0,
    priority: int = 0,
    context: Context = NO_CONTEXT,
) -> Ticket:
    """A request as a ticket, its number still 0.

    Args:
        plan: The model it is for.
        inputs: Its inputs, in any order, each name once.
        arrived: ``time.monotonic_ns()`` at its arrival.
        timeout_ns: Queue time-out asked for.
        priority: Priority level asked for.
        context: What else it says.

    Raises:
        RequestError: The inputs do not fit the model.
    """
    ordered, shapes = check_inputs(plan, inputs)
    return Ticket(
        number=0,
        rows=next((shape.rows for shape in shapes if shape is not None), 1),
        arrived=arrived,
        inputs=[item.data if item is not None else None for item in ordered],
        shapes=[shape.dims if shape is not None else None for shape in shapes],
        key=plan.key(shapes),
        timeout_ns=timeout_ns,
        priority=priority,
        context=context,
    )


def check_inputs(plan: InferPlan, items: Sequence[Tensor]) -> tuple[list[Tensor | None], list[Shape | None]]:
    """Check the inputs of a request against the model's config.

    Args:
        plan: The model.
        items: The inputs, in any order, each name once.

    Returns:
        The inputs in config order, and their shapes; None for an optional one that was left out.

    Raises:
        RequestError: E12 to E21 of the Triton contract.
    """
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
        plan.shape(index, item.shape) if item is not None else None for index, item in enumerate(ordered)
    ]
    for item, shape in zip(ordered, shapes, strict=True):
        if item is not None and shape is not None:
            _check_content(plan, item, shape)
    return ordered, shapes


def _check_names(plan: InferPlan, given: dict[str, Tensor]) -> None:
    expected = plan.inputs_by_name
    required = [item.name for item in plan.settings.inputs if not item.optional]
    largest = len(plan.settings.inputs)
    if not len(required) <= len(given) <= largest:
        missing = [name for name in required if name not in given]
        listed = "[" + ",".join(f"'{name}'" for name in missing) + "]" if missing else "]"
        got = "[" + ",".join(f"'{name}'" for name in given) + "]" if given else "[]"
        wanted = (
            f"{largest} inputs"
            if len(required) == largest
            else f"number of inputs between {len(required)} and {largest}"
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


def _check_batch(plan: InferPlan, items: Sequence[Tensor]) -> None:
    first = items[0].shape[0] if items and items[0].shape else None
    for item in items[1:]:
        if (item.shape[0] if item.shape else None) != first:
            raise RequestError(
                f"input '{item.name}' batch size does not match other inputs for '{plan.name}'", tagged=True
            )


def _check_content(plan: InferPlan, item: Tensor, shape: Shape) -> None:
    if item.datatype.size:
        got = len(item.data)
        if got != shape.size:
            raise RequestError(
                f"input byte size mismatch for input '{item.name}' for model '{plan.name}'. "
                f"Expected {shape.size}, got {got}",
                tagged=True,
            )
        return
    count, left, announced = count_strings(item.data)
    if left and announced < 0:
        raise RequestError(
            f"incomplete string length indicator for inference input '{item.name}' for model '{plan.name}', "
            f"expecting 4 bytes but only {left} bytes available. Please make sure the string length "
            "indicator is "
            "in one buffer.",
            tagged=True,
        )
    # A string whose length word is there counts, although its bytes are cut off.
    cut = announced > 0
    if count + cut < shape.count:
        raise RequestError(
            f"expected {shape.count} string elements for inference input '{item.name}' for model "
            f"'{plan.name}', got {count + cut}",
            tagged=True,
        )
    if count + cut > shape.count:
        raise RequestError(
            f"unexpected number of string elements {count + cut} for inference input '{item.name}' for model "
            f"'{plan.name}', expecting {shape.count}",
            tagged=True,
        )
    if cut:
        raise RequestError(
            f"incomplete string data for inference input '{item.name}', expecting string of length "
            f"{announced} but only {left} bytes available",
            plain=True,
        )
    check_text(plan, item.name, item.data)


def check_text(plan: InferPlan, name: str, data: Buffer) -> None:
    """Check the strings of an input for a backend that takes text only.

    It could only fail for the whole batch, with requests in it that have nothing to do with the string.

    Args:
        plan: The model.
        name: Input name.
        data: Packed elements, well-formed.

    Raises:
        RequestError: An element is not UTF-8.
    """
    if not plan.text_only:
        return
    try:
        for element in unpack_strings(data):
            element.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise not_text(name, exc) from exc
