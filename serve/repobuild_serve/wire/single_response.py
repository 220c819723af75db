"""Writing the response to one request of a model that answers request by request.

Such a model gives its outputs in any order, may leave some out, and what it gives stands in the response as
it is, whatever the config says of types and shapes (Triton contract, validation rules).
"""

from __future__ import annotations

from math import prod

import orjson

from repobuild_serve.core.ticket import Response, Tensor
from repobuild_serve.datatypes import BY_WIRE_NAME
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.wire.classification import check_class_count, top_classes
from repobuild_serve.wire.json_numbers import number_rows, scalar_json, string_json
from repobuild_serve.wire.parameters import UNORDERED, json_output_refused, no_classes
from repobuild_serve.wire.plan import Asked, InferPlan, Wanted
from repobuild_serve.wire.response import item_head, with_id
from repobuild_serve.wire.strings import count_strings, pack, unpack_strings


def single_response(plan: InferPlan, asked: Asked, response: Response) -> tuple[bytes, list[bytes]]:
    """One response as the client wants it.

    Args:
        plan: The model.
        asked: How the answer is wanted.
        response: The model's response, which is no error.

    Returns:
        The JSON part, and the blobs that follow it.

    Raises:
        RequestError: An output cannot be sent the way it was asked for.
    """
    wanted = {plan.settings.outputs[item.index].name: item for item in asked.wanted or ()}
    everything = asked.wanted is None
    items: list[bytes] = []
    blobs: list[bytes] = []
    for tensor in response.outputs:
        how = wanted.get(tensor.name)
        if how is None:
            if not everything:
                continue
            how = Wanted(0)
        items.append(_item(plan, tensor, how, blobs))
    head = b'{"model_name":%b,"model_version":"%d",' % (orjson.dumps(plan.name), plan.version)
    if response.parameters:
        head += b'"parameters":{%b},' % b",".join(
            scalar_json(name) + b":" + scalar_json(value) for name, value in response.parameters.items()
        )
    text = head + b'"outputs":[' + b",".join(items) + b"]}"
    return (with_id(asked.request_id, text) if asked.request_id else text), blobs


def _item(plan: InferPlan, tensor: Tensor, how: Wanted, blobs: list[bytes]) -> bytes:
    if how.classes:
        texts, shape = _classes(plan, tensor, how)
        tensor = Tensor(tensor.name, BY_WIRE_NAME["BYTES"], shape, pack(texts))
    head = item_head(tensor.name, tensor.datatype.wire, tensor.shape)
    if how.binary:
        data = bytes(tensor.data)
        blobs.append(data)
        return head + b',"parameters":{"binary_data_size":%d}}' % len(data)
    return head + b',"data":[' + json_elements(tensor) + b"]}"


def json_elements(tensor: Tensor) -> bytes:
    """The elements of a tensor as JSON, joined by commas.

    Raises:
        RequestError: JSON cannot carry the type (E35 of the Triton contract), or the data do not fit the
            shape.
    """
    import numpy as np

    wire, count = tensor.datatype.wire, prod(tensor.shape)
    if wire in {"FP16", "BF16"}:
        raise json_output_refused(wire)
    data = bytes(tensor.data)
    if wire == "BYTES":
        found, left, announced = count_strings(data)
        if found != count or left or announced > 0:
            raise _misfit(tensor)
        return b",".join(map(string_json, unpack_strings(data)))
    if len(data) != count * tensor.datatype.size:
        raise _misfit(tensor)
    array = np.frombuffer(data, dtype=tensor.datatype.numpy)
    return number_rows(array.reshape(1, array.size))[0]


def _misfit(tensor: Tensor) -> RequestError:
    return RequestError(
        f"output tensor shape does not match size of output for '{tensor.name}'", Code.INTERNAL
    )


def _classes(plan: InferPlan, tensor: Tensor, how: Wanted) -> tuple[list[bytes], tuple[int, ...]]:
    import numpy as np

    if tensor.datatype.wire in UNORDERED:
        raise no_classes(tensor.datatype.wire)
    if len(tensor.data) != prod(tensor.shape) * tensor.datatype.size:
        raise _misfit(tensor)
    array = np.frombuffer(tensor.data, dtype=tensor.datatype.numpy)
    lead = tensor.shape[:1] if plan.settings.batched else ()
    width = prod(tensor.shape[len(lead) :])
    check_class_count(width)
    texts = top_classes(array.reshape(prod(lead), width), how.classes, plan.labels[how.index])
    return texts, (*lead, min(how.classes, width))
