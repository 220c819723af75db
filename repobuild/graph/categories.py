"""Keeps encoders of numeric categories from taking 1.7 for 1.

scikit-learn compares a number with the categories as it is. ONNX's encoders look whole numbers up, and cast
floats to them by cutting off the fraction (ai.onnx.ml OneHotEncoder: "the data will be cast to integers"), so
a number that is no category would be answered as its neighbour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from repobuild.graph.doubles import element_types

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

KEYS = {"OneHotEncoder": "cats_int64s", "LabelEncoder": "keys_int64s"}
"""Operators that look whole numbers up, and the attribute with those that they know."""

BEYOND = 2.0**63
"""The smallest float above every INT64."""


def keep_fractions_unknown(model: ModelProto) -> None:
    """Let encoders of whole numbers meet a number that they do not know wherever a float is no whole one.

    Args:
        model: The graph; changed in place.
    """
    from onnx import TensorProto

    types = element_types(model)
    floats = (TensorProto.FLOAT, TensorProto.DOUBLE)
    casts = {n.output[0]: n for n in model.graph.node if n.op_type == "Cast"}
    guards: dict[int, list[NodeProto]] = {}
    for index, node in enumerate(model.graph.node):
        known = _known(node)
        if not known:
            continue
        cast = casts.get(node.input[0])
        start = cast.input[0] if cast is not None else node.input[0]
        if types.get(start) in floats:
            guards[index] = _guard(model, node, start, types[start], known)
    fresh: list[NodeProto] = []
    for index, node in enumerate(model.graph.node):
        fresh.extend((*guards.get(index, ()), node))
    copies = [type(n).FromString(n.SerializeToString()) for n in fresh]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _known(node: NodeProto) -> tuple[int, ...]:
    """The whole numbers that an encoder knows, none for another operator."""
    name = KEYS.get(node.op_type)
    return next((tuple(a.ints) for a in node.attribute if a.name == name), ())


def _guard(
    model: ModelProto, node: NodeProto, start: str, element: int, known: tuple[int, ...]
) -> list[NodeProto]:
    """What goes before an encoder: the whole number, or one that it does not know."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    label = f"{node.output[0]}/whole"
    taken = set(known)
    lowest = int(np.iinfo(np.int64).min)
    stranger = next(n for n in range(lowest, lowest + len(taken) + 1) if n not in taken)
    beyond = np.array(BEYOND, dtype=helper.tensor_dtype_to_np_dtype(element))
    model.graph.initializer.append(numpy_helper.from_array(beyond, f"{label}/beyond"))
    model.graph.initializer.append(
        numpy_helper.from_array(np.array(stranger, dtype=np.int64), f"{label}/stranger")
    )
    node.input[0] = label
    steps = (
        ("Floor", (start,), "floor"),
        ("Equal", (start, f"{label}/floor"), "equal"),
        ("Abs", (start,), "size"),
        ("Less", (f"{label}/size", f"{label}/beyond"), "held"),
        ("And", (f"{label}/equal", f"{label}/held"), "is"),
    )
    nodes = [helper.make_node(op, takes, [f"{label}/{to}"], name=f"{label}/{to}") for op, takes, to in steps]
    cut = helper.make_node("Cast", [start], [f"{label}/cut"], name=f"{label}/cut", to=TensorProto.INT64)
    choice = [f"{label}/is", f"{label}/cut", f"{label}/stranger"]
    return [*nodes, cut, helper.make_node("Where", choice, [label], name=label)]
