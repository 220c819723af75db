"""ONNX's version converter, on graphs of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repobuild.graph.external import SMALL_BYTES, external_tensors, tensor_bytes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto


class Unconvertible(Exception):
    """Raised for a graph that cannot be brought to another opset; the text says why."""


def converted(model: ModelProto, opset: int) -> ModelProto:
    """The graph at another opset of the default domain.

    The converter drops external data and copies what it sees, so weights are inputs while it works: it reads
    the values of small constants only (axes, sizes, pads; onnx/version_converter/adapters).

    Args:
        model: The graph, which is left as it is.
        opset: The opset that is wanted.

    Raises:
        Unconvertible: An operator has no form at that opset, or weights lie where they cannot be set aside.
    """
    import onnx
    from onnx import version_converter

    light = onnx.ModelProto()
    light.CopyFrom(_head(model))
    weights = [t for t in model.graph.initializer if _is_weight(t)]
    names = {t.name for t in weights}
    kept = [t for t in model.graph.initializer if t.name not in names]
    light.graph.initializer.extend(kept)
    if any(external_tensors(light)):
        raise Unconvertible("its weights lie in constants of nodes, which the converter does not carry")
    known = {v.name for v in light.graph.input}
    added = names - known
    for tensor in weights:
        if tensor.name in added:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            light.graph.input.append(value)
    try:
        made = version_converter.convert_version(light, opset)
    except (RuntimeError, version_converter.ConvertError) as problem:
        raise Unconvertible("; ".join(str(problem).strip().splitlines()[:2])) from problem
    _drop_inputs(made.graph, added)
    made.graph.initializer.extend(weights)
    return made


def _head(model: ModelProto) -> ModelProto:
    """The model without the initialisers of its main graph, which are not copied."""
    import onnx

    made = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name == "graph":
            continue
        if field.is_repeated:
            getattr(made, field.name).extend(value)
        else:
            setattr(made, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name == "initializer":
            continue
        if field.is_repeated:
            getattr(made.graph, field.name).extend(value)
        else:
            setattr(made.graph, field.name, value)
    return made


def _is_weight(tensor: TensorProto) -> bool:
    from onnx import TensorProto

    return tensor.data_type != TensorProto.STRING and tensor_bytes(tensor) >= SMALL_BYTES


def _drop_inputs(graph: GraphProto, names: set[str]) -> None:
    kept = [type(v).FromString(v.SerializeToString()) for v in graph.input if v.name not in names]
    del graph.input[:]
    graph.input.extend(kept)
