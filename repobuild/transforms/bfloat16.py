"""bfloat16: weights stored in 16 bits, arithmetic in float32.

ONNX Runtime's CPU provider has next to no bfloat16 kernels: of 50 common operators tried one by one in 1.32,
16 load (LayerNormalization, Clip, Sign, and operators that only move data, such as Gather and Transpose), and
MatMul, Gemm, Conv, Add, Mul, Softmax and all further arithmetic do not; unlike for float16, no Casts are put
around the missing ones. Triton, too, has no bfloat16 in its ONNX Runtime backend's inputs and outputs.

So each weight is stored in bfloat16, with a Cast to float32 in front of its readers. The file is half as
large; ONNX Runtime does these Casts once, when it loads the model, and computes in float32 from there on:
speed and memory at run time stay as they were, and so does the range of all values. The answers differ by the
rounding of the weights alone, at most 2^-8 of each (8 bits of significand). Weights that would round to
infinity stay float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from repobuild.errors import ConversionFailed, evidence
from repobuild.tensors import Array, Batch
from repobuild.transforms.casting import FLOAT, TensorKey, readers
from repobuild.transforms.checking import check_types
from repobuild.transforms.element_types import Path as GraphPath
from repobuild.transforms.element_types import graphs
from repobuild.transforms.files import SMALL, GraphFile, opened, size_of
from repobuild.transforms.interface import Applied
from repobuild.transforms.nodes import cast, fresh_name, opset_of, set_nodes
from repobuild.transforms.tools import tool
from repobuild.transforms.weights import CHUNK, float_weights
from repobuild.transforms.writing import Writer, all_or_nothing
from repobuild.worker.onnx_session import open_session

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

BFLOAT16 = 16
"""``TensorProto.BFLOAT16``."""
LOWEST_OPSET = 13
"""The first opset whose Cast takes bfloat16."""


class BFloat16:
    """Stores the weights in bfloat16, and computes in float32."""

    name = "bf16"

    def apply(self, model: Path, requests: Sequence[Batch], to: Path) -> Applied:
        """See :meth:`repobuild.transforms.interface.Transform.apply`; the requests are not used.

        Raises:
            ConversionFailed: ``nothing-to-convert``: no float32 weight of more than 1 KiB;
                ``opset-conversion``: an opset below 13.
        """
        before = size_of(model)
        with opened(model) as source:
            _demand_opset(source.proto)
            chosen, overflowing = _choose(source)
            _write(source, chosen, to)
        with all_or_nothing(to):
            check_types(to)
            open_session(to)
        notes = ["weights are bfloat16 in the file, and float32 once loaded; all arithmetic is float32"]
        if overflowing:
            notes.append(f"weights that bfloat16 would make infinite stay float32: {', '.join(overflowing)}")
        return Applied(
            f"{len(chosen)} weights are stored in bfloat16",
            tuple(notes),
            (tool("onnx"), tool("onnxruntime")),
            before,
            size_of(to),
        )


def rounded(values: Array) -> Array:
    """The bits of float32 values in bfloat16, as ``uint16``, rounded to nearest, ties to even.

    bfloat16 is the upper half of a float32; adding half of the last place kept, less one if that place is
    even, carries into it exactly when rounding up is right. NaN stays NaN.
    """
    import numpy as np

    result = np.empty(values.size, dtype=np.uint16)
    flat = values.reshape(-1)
    for start in range(0, flat.size, CHUNK):
        part = np.ascontiguousarray(flat[start : start + CHUNK], dtype=np.float32)
        bits = part.view(np.uint32)
        up = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        nan = (bits >> np.uint32(16)) | np.uint32(0x40)
        result[start : start + CHUNK] = np.where(np.isnan(part), nan, up)
    shaped: Array = result.reshape(values.shape)
    return shaped


def _demand_opset(proto: ModelProto) -> None:
    opset = opset_of(proto)
    if opset < LOWEST_OPSET:
        raise ConversionFailed(
            "opset-conversion",
            f"bfloat16 needs opset {LOWEST_OPSET}, the graph has {opset}",
            evidence(["the first Cast that takes bfloat16 came with opset 13"]),
            f"write export: {{opset: {LOWEST_OPSET}}} or higher",
        )


def _choose(source: GraphFile) -> tuple[dict[TensorKey, None], list[str]]:
    """The weights that become bfloat16 (large ones that only nodes read), and those that would overflow."""
    found = readers(source.proto.graph)
    interface = {v.name for v in source.proto.graph.input}
    chosen: dict[TensorKey, None] = {}
    overflowing: list[str] = []
    for (path, name), tensor in float_weights(source.proto):
        key = (path, name)
        if 4 * math.prod(tensor.dims) <= SMALL or key in found.outputs or (not path and name in interface):
            continue
        if key not in found.nodes:
            continue
        values = source.array(tensor)
        if _overflows(values):
            overflowing.append(f"'{name}'")
        else:
            chosen[key] = None
    if not chosen:
        raise ConversionFailed(
            "nothing-to-convert",
            "the graph has no float32 weights that bfloat16 could make smaller",
            evidence([f"weights of at most {SMALL} bytes stay as they are", *overflowing[:5]]),
            "leave precision: bf16 out for this model",
        )
    return chosen, overflowing


def _overflows(values: Array) -> bool:
    import numpy as np

    flat = values.reshape(-1)
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        infinite = (rounded(part) & np.uint16(0x7FFF)) == np.uint16(0x7F80)
        if bool(np.any(infinite & np.isfinite(part))):
            return True
    return False


def _write(source: GraphFile, chosen: dict[TensorKey, None], to: Path) -> None:
    proto = source.copy()
    with Writer(source, to) as writer:
        for key, tensor in float_weights(proto):
            if key in chosen:
                writer.put(tensor, rounded(source.array(tensor)), BFLOAT16)
        taken = {name for _, graph in graphs(proto.graph) for name in _names(graph)}
        _widen(proto.graph, (), chosen, taken)
        writer.finish(proto)


def _widen(graph: GraphProto, path: GraphPath, chosen: dict[TensorKey, None], taken: set[str]) -> None:
    """Give each chosen weight another name, and its own name to a Cast of it, so that no reader changes."""
    from repobuild.transforms.element_types import bodies

    casts: list[NodeProto] = []
    for tensor in graph.initializer:
        if (path, tensor.name) in chosen:
            name = tensor.name
            tensor.name = fresh_name(f"{name}/bfloat16", taken)
            casts.append(cast(tensor.name, name, FLOAT))
    fresh: list[NodeProto] = []
    for index, node in enumerate(graph.node):
        for part, body in bodies(node):
            _widen(body, (*path, (index, part)), chosen, taken)
        fresh.append(node)
        if node.op_type == "Constant" and not node.domain and (path, node.output[0]) in chosen:
            name = node.output[0]
            node.output[0] = fresh_name(f"{name}/bfloat16", taken)
            fresh.append(cast(node.output[0], name, FLOAT))
    del graph.value_info[:]
    set_nodes(graph, (*casts, *fresh))


def _names(graph: GraphProto) -> list[str]:
    made = [name for node in graph.node for name in (node.name, *node.output)]
    return [*made, *(t.name for t in graph.initializer), *(v.name for v in graph.input)]
