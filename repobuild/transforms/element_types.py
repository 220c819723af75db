"""Element types of every tensor of a graph, those in the bodies of control-flow nodes included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from repobuild.transforms.files import GraphFile, is_external

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TypeProto

Path: TypeAlias = tuple[tuple[int, str], ...]
"""Which graph: ``(node index, attribute name and position)`` from the outermost graph down."""
Types: TypeAlias = Mapping[Path, Mapping[str, int]]
"""ONNX element type by graph and tensor name; what is no tensor, or not known, is left out."""


def bodies(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """The graphs in a node's attributes, with a name for each."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for number, graph in enumerate(attribute.graphs):
            yield f"{attribute.name}[{number}]", graph


def graphs(graph: GraphProto, path: Path = ()) -> Iterator[tuple[Path, GraphProto]]:
    """The graph and all bodies inside it, outermost first."""
    yield path, graph
    for index, node in enumerate(graph.node):
        for name, body in bodies(node):
            yield from graphs(body, (*path, (index, name)))


def element_types(source: GraphFile) -> Types:
    """Find the types by ONNX's inference, and ask ONNX Runtime for what ONNX does not know.

    Weights take no part: the inference sees their types and shapes alone. Value infos that the file declares
    are not believed.
    """
    stub = _without_weights(source.proto)
    found = _inferred(stub)
    if any(name not in found[()] for node in source.proto.graph.node for name in node.output if name):
        asked = _asked(source)
        found[()] = {**asked, **found[()]}
    return found


def _inferred(stub: ModelProto) -> dict[Path, dict[str, int]]:
    import onnx

    try:
        inferred = onnx.shape_inference.infer_shapes(stub, strict_mode=False)
    except onnx.shape_inference.InferenceError:  # types that clash; ONNX Runtime is asked instead
        inferred = stub
    found: dict[Path, dict[str, int]] = {}
    for path, graph in graphs(inferred.graph):
        types = {t.name: t.data_type for t in graph.initializer}
        for value in (*graph.input, *graph.value_info, *graph.output):
            kind = _tensor_type(value.type)
            if kind:
                types[value.name] = kind
        for node in graph.node:
            if node.op_type == "Constant" and not node.domain:
                types[node.output[0]] = _constant_type(node.attribute[0])
        found[path] = types
    return found


def _asked(source: GraphFile) -> dict[str, int]:
    """The types of the outermost graph's tensors, from a session that has them all as outputs."""
    from onnx import TensorProto

    from repobuild.transforms.session import open_graph

    proto = source.copy()
    outputs = {value.name for value in proto.graph.output}
    for name in (n for node in source.proto.graph.node for n in node.output):
        if name and name not in outputs:
            outputs.add(name)
            proto.graph.output.add().name = name
    names = {
        f"tensor({spoken})": int(getattr(TensorProto, kind))
        for spoken, kind in (
            ("float", "FLOAT"), ("double", "DOUBLE"), ("float16", "FLOAT16"), ("bfloat16", "BFLOAT16"),
            ("bool", "BOOL"), ("string", "STRING"), ("int8", "INT8"), ("int16", "INT16"), ("int32", "INT32"),
            ("int64", "INT64"), ("uint8", "UINT8"), ("uint16", "UINT16"), ("uint32", "UINT32"),
            ("uint64", "UINT64"),
        )
    }  # fmt: skip
    session = open_graph(proto, source)
    return {o.name: names[o.type] for o in session.get_outputs() if o.type in names}


def _without_weights(proto: ModelProto) -> ModelProto:
    """A copy in which large tensors have type and shape only, and nothing inferable is declared."""
    from onnx import ModelProto, TensorProto

    stub = ModelProto()
    stub.CopyFrom(proto)
    for _, graph in graphs(stub.graph):
        del graph.value_info[:]
        for tensor in graph.initializer:
            if is_external(tensor) or tensor.ByteSize() > 4096:
                bare = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
                bare.data_location = TensorProto.EXTERNAL
                entry = bare.external_data.add()
                entry.key, entry.value = "location", "elsewhere"
                tensor.CopyFrom(bare)
    return stub


def _tensor_type(kind: TypeProto) -> int:
    return int(kind.tensor_type.elem_type) if kind.HasField("tensor_type") else 0


def _constant_type(attribute: AttributeProto) -> int:
    from onnx import TensorProto

    scalars = {"value_float": 1, "value_floats": 1, "value_int": 7, "value_ints": 7}
    if attribute.name == "value":
        return int(attribute.t.data_type)
    if attribute.name == "sparse_value":
        return int(attribute.sparse_tensor.values.data_type)
    return scalars.get(attribute.name, int(TensorProto.STRING))
