"""The float32 weights of a graph: initialisers and Constants, and what float16 would make of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repobuild.tensors import Array
from repobuild.transforms.casting import FLOAT, TensorKey
from repobuild.transforms.element_types import graphs

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

LARGEST = 65504.0
"""Largest finite float16 (IEEE 754-2008, binary16)."""
FAINTEST = 2.0**-25
"""Half of the smallest float16 above zero, 2^-24; it and what is smaller rounds to zero."""
CHUNK = 1 << 22
"""Elements that are looked at together."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How large the values of a weight are.

    Attributes:
        largest: Largest finite ``|value|``.
        lost: Values other than zero that float16 rounds to zero.
    """

    largest: float
    lost: int

    @property
    def why_not_half(self) -> str:
        """Why float16 cannot hold it; empty if it can."""
        if self.largest > LARGEST:
            return f"holds {self.largest:.4g}, float16 ends at {LARGEST:.0f}"
        if 0 < self.largest <= FAINTEST:
            return f"holds at most {self.largest:.4g}, which float16 rounds to zero"
        return ""


def float_weights(proto: ModelProto) -> Iterator[tuple[TensorKey, TensorProto]]:
    """The float32 initialisers and Constants of a graph and its bodies; all Constants become tensors."""
    for path, graph in graphs(proto.graph):
        for tensor in graph.initializer:
            if tensor.data_type == FLOAT:
                yield (path, tensor.name), tensor
        for node in graph.node:
            if node.op_type != "Constant" or node.domain:
                continue
            attribute = node.attribute[0]
            if attribute.name in ("value_float", "value_floats"):
                _as_tensor(node)
                attribute = node.attribute[0]
            if attribute.name == "value" and attribute.t.data_type == FLOAT:
                yield (path, node.output[0]), attribute.t


def extent(values: Array) -> Extent:
    """Look at all values of a float32 array, some million at a time."""
    import numpy as np

    flat = values.reshape(-1)
    largest, lost = 0.0, 0
    for start in range(0, flat.size, CHUNK):
        part = np.abs(flat[start : start + CHUNK])
        finite = part[np.isfinite(part)]
        if finite.size:
            largest = max(largest, float(finite.max()))
            lost += int(np.count_nonzero((finite > 0) & (finite <= FAINTEST)))
    return Extent(largest, lost)


def _as_tensor(node: object) -> None:
    import numpy as np
    from onnx import NodeProto, helper, numpy_helper

    assert isinstance(node, NodeProto)
    value = np.asarray(helper.get_attribute_value(node.attribute[0]), dtype=np.float32)
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(value)))
