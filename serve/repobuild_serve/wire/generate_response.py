"""Writing one response of a generate request: one flat JSON object (Triton contract)."""

from __future__ import annotations

from math import prod

from repobuild_serve.core.ticket import Response, Tensor
from repobuild_serve.wire.json_numbers import scalar_json, string_json
from repobuild_serve.wire.plan import InferPlan
from repobuild_serve.wire.single_response import json_elements


def generate_document(plan: InferPlan, request_id: str, response: Response) -> bytes:
    """The response as a JSON object, its keys in byte order.

    Args:
        plan: The model.
        request_id: The client's id; empty if none.
        response: The response, which is no error.

    Raises:
        RequestError: JSON cannot carry an output.
    """
    members: dict[str, bytes] = {}
    if request_id:
        members["id"] = scalar_json(request_id)
    members["model_name"] = scalar_json(plan.name)
    members["model_version"] = scalar_json(str(plan.version))
    # Of members with one name the first stays, as with Triton.
    for name, value in response.parameters.items():
        members.setdefault(name, scalar_json(value))
    for tensor in response.outputs:
        if tensor.name not in members:
            members[tensor.name] = _value(tensor)
    named = sorted((name.encode("utf-8", "surrogateescape"), text) for name, text in members.items())
    return b"{" + b",".join(string_json(name) + b":" + text for name, text in named) + b"}"


def _value(tensor: Tensor) -> bytes:
    elements = json_elements(tensor)
    return elements if prod(tensor.shape) == 1 else b"[" + elements + b"]"
