"""Reading a generate request: a JSON object whose members are inputs and parameters (Triton contract)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from repobuild_serve.config.settings import TensorConfig
from repobuild_serve.core.ticket import Context, Scalar, Tensor
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.wire.access import optional
from repobuild_serve.wire.checking import ticket_of
from repobuild_serve.wire.json_data import pack_json
from repobuild_serve.wire.json_text import Pairs, load_json, load_pairs
from repobuild_serve.wire.parameters import own_parameter
from repobuild_serve.wire.plan import Asked, InferPlan, Parsed
from repobuild_serve.wire.reading import Reading, check_json_size

_NESTED = "parameters"
Members = Iterable[tuple[str, Any]]


def read_generate(plan: InferPlan, body: bytes, reading: Reading, size_limit: int) -> Parsed:
    """Read a generate request.

    Args:
        plan: The model it is for.
        body: The body, which is all JSON.
        reading: Knows when the request arrived; gets the request id.
        size_limit: Largest body in bytes.

    Raises:
        RequestError: The request is malformed or does not fit the model.
    """
    check_json_size(len(body), size_limit)
    document = load_json(body)
    if not isinstance(document, dict):
        raise RequestError("attempt to get members for non-object", Code.INTERNAL)
    reading.request_id = request_id = optional(document, "id", "string", "")
    found = _Found(plan, legacy=reading.legacy)
    repeated = any(body.count(b'"%b"' % name.encode()) > 1 for name in plan.inputs_by_name)
    found.walk(load_pairs(body) if repeated else document.items())
    context = Context(request_id, None, found.parameters)
    ticket = ticket_of(plan, list(found.inputs.values()), arrived=reading.arrived, context=context)
    return ticket, Asked(context)


class _Found:
    """What the members of a request are, in the order in which they stand there."""

    def __init__(self, plan: InferPlan, *, legacy: bool) -> None:
        self._plan = plan
        self._legacy = legacy
        self.inputs: dict[str, Tensor] = {}
        self.parameters: dict[str, Scalar] = {}

    def walk(self, members: Members) -> None:
        """Take the members of the request."""
        for name, value in members:
            if name == _NESTED:
                self._walk_nested(value)
            else:
                self._take(name, value)

    def _walk_nested(self, value: Any) -> None:
        if _NESTED in self._plan.inputs_by_name:
            raise RequestError(f"Keyword '{_NESTED}' for nested schema also given as input tensor name")
        members = _members(value)
        if members is None:
            raise RequestError(
                f"Expected JSON object for keyword: '{_NESTED}': attempt to access JSON non-object as object",
                Code.INTERNAL,
            )
        try:
            for name, inner in members:
                self._take(name, inner)
        except RequestError as exc:
            raise RequestError(
                f"Converting keyword: '{_NESTED}': {exc.text}", exc.code, tagged=exc.tagged
            ) from exc

    def _take(self, name: str, value: Any) -> None:
        index = self._plan.inputs_by_name.get(name)
        if index is None:
            self.parameters[name] = own_parameter(name, value)
            return
        tensor = _tensor(self._plan, self._plan.inputs[index].config, value, legacy=self._legacy)
        if name in self.inputs:
            raise RequestError(f"input '{name}' already exists in request", tagged=True)
        self.inputs[name] = tensor


def _members(value: Any) -> Members | None:
    if isinstance(value, dict):
        return value.items()
    return value.pairs if isinstance(value, Pairs) else None


def _tensor(plan: InferPlan, config: TensorConfig, value: Any, *, legacy: bool) -> Tensor:
    """A value, or a flat array of them, in the shape that fits the config."""
    data = value if isinstance(value, list) else [value]
    shape = _made_up([-1, *config.dims] if plan.settings.batched else list(config.dims), len(data))
    if shape is None:
        raise RequestError(f"The schema can not convert input '{config.name}' to tensor with proper shape")
    packed = pack_json(data, config.datatype, len(data), config.name, plan.name, legacy=legacy)
    return Tensor(config.name, config.datatype, tuple(shape), packed)


def _made_up(dims: list[int], count: int) -> list[int] | None:
    """The shape of ``count`` elements: what fixed dims leave goes to the innermost variable one.

    Returns:
        The shape, its other variable dims being 1; None if the elements do not fit.
    """
    for dim in dims:
        if dim == -1:
            continue
        if dim == 0 or count % dim:
            return None
        count //= dim
    for index in reversed(range(len(dims))):
        if dims[index] == -1:
            dims[index], count = count, 1
    return dims if count == 1 else None
