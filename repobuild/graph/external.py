"""External data of ONNX models: tensors in a file beside the graph, never held in memory as a whole.

Paths in a model are not trusted (CVE-2022-25882 and its successors): they must be relative, stay in the
model's folder and name regular files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from repobuild.graph.walk import all_nodes, subgraphs

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto

    from repobuild.tensors import Array

EMBED_BYTES = 64 << 20
"""Weights of up to so many bytes are written into the ONNX file itself."""

SMALL_BYTES = 1024
"""Tensors of fewer bytes stay in the graph, where shape inference and folding read them."""

ALIGNMENT = 4096
"""Offsets of large tensors, so that a runtime can map them (onnx/external_data_helper.py, ORT's mapping)."""

PIECE = 1 << 22


class ExternalDataUnsafe(Exception):
    """Raised for external data that cannot be used.

    Attributes:
        lines: What is wrong, one line a fault.
    """

    def __init__(self, lines: list[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


def all_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every constant tensor: initialisers and attributes, in subgraphs and local functions too."""
    yield from _graph_tensors(model.graph)
    for node in all_nodes(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def _graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _graph_tensors(inner)


def external_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """The tensors whose data lies in other files."""
    from onnx import TensorProto

    return (t for t in all_tensors(model) if t.data_location == TensorProto.EXTERNAL)


def locations(model: ModelProto) -> set[str]:
    """The files that hold external data, as the model names them."""
    return {e.value for t in external_tensors(model) for e in t.external_data if e.key == "location"}


def entry(tensor: TensorProto) -> tuple[str, int, int]:
    """File, offset and length in bytes of a tensor's external data; -1 is the rest of the file."""
    found = {e.key: e.value for e in tensor.external_data}
    return found.get("location", ""), int(found.get("offset", 0)), int(found.get("length", -1))


def check_external(model: ModelProto, folder: Path) -> None:
    """Make sure that external data lies in files of the model's own folder, and is all there.

    Raises:
        ExternalDataUnsafe: A path leads elsewhere, a file is missing or too short.
    """
    wrong: dict[str, None] = {}
    for tensor in external_tensors(model):
        try:
            name, offset, length = entry(tensor)
        except ValueError:
            wrong[f"tensor '{tensor.name}' has an offset or length that is no number"] = None
            continue
        trouble = unsafe_path(name)
        if trouble:
            wrong[f"tensor '{tensor.name}' lies in '{name}', {trouble}"] = None
            continue
        file = folder / name
        if file.is_symlink() or not file.is_file():
            wrong[f"tensor '{tensor.name}' lies in '{name}', and there is no such file"] = None
            continue
        size = file.stat().st_size
        need = tensor_bytes(tensor)
        if length >= 0 and length != need:
            wrong[f"tensor '{tensor.name}' has {length} bytes, and its shape takes {need}"] = None
        elif offset < 0 or offset + need > size:
            wrong[
                f"tensor '{tensor.name}' begins at byte {offset} and ends at byte {offset + need}"
                f" of '{name}', which has {size} bytes"
            ] = None
    if wrong:
        raise ExternalDataUnsafe(list(wrong)[:8])


def unsafe_path(name: str) -> str:
    """Why a location is not followed, empty for one that is."""
    path = PurePosixPath(name)
    if not name or path.name in ("", ".", ".."):
        return "which names no file"
    if path.is_absolute() or "\\" in name or ":" in name:
        return "which is no relative path"
    if ".." in path.parts:
        return "which leads out of the model's folder"
    return ""


def tensor_bytes(tensor: TensorProto) -> int:
    """The bytes that a tensor's values take."""
    from onnx import helper

    count: int = math.prod(tensor.dims)
    name = _name(tensor)
    if name in _PACKED:
        return -(-count // _PACKED[name])
    return count * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


_PACKED = {"INT4": 2, "UINT4": 2, "FLOAT4E2M1": 2, "INT2": 4, "UINT2": 4}
"""Values that share a byte (onnx.proto3, ``TensorProto.raw_data``)."""


def without_data(model: ModelProto) -> ModelProto:
    """The same graph for ONNX's checker, which otherwise looks for the files of external data."""
    from onnx import ModelProto, TensorProto

    if not any(external_tensors(model)):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    for tensor in external_tensors(copy):
        del tensor.external_data[:]
        tensor.data_location = TensorProto.DEFAULT
        dims = list(tensor.dims)
        tensor.ClearField("dims")
        tensor.dims.extend([0, *dims[1:]] if dims else [0])
    return copy


def load_graph(path: Path) -> ModelProto:
    """Read a model, its external data left where it is."""
    import onnx

    return onnx.load(str(path), load_external_data=False)


def embed_small(model: ModelProto, data: Path, most: int = EMBED_BYTES) -> None:
    """Take external data into the graph, in place, where all weights together have at most so many bytes.

    Raises:
        OSError: A file cannot be read.
    """
    if sum(tensor_bytes(t) for t in all_tensors(model) if t.data_type != _STRING) <= most:
        for tensor in external_tensors(model):
            _embed(tensor, data)


def store(model: ModelProto, data: Path, to: Path, embed: int = EMBED_BYTES) -> tuple[Path, ...]:
    """Write a model with its external data gathered, one tensor after another.

    Weights of up to ``embed`` bytes together become part of the ONNX file. Otherwise tensors of at least
    :data:`SMALL_BYTES` go into ``<name>.data`` beside it, wherever they are now, the others into the graph.

    Args:
        model: The model; its references to external data are changed in place.
        data: Folder of the present external data.
        to: ONNX file to write.
        embed: Bytes of weights that are written into the ONNX file.

    Returns:
        The files written, the ONNX file first.

    Raises:
        ExternalDataUnsafe: A tensor has not as many values as its shape says.
        OSError: A file cannot be read or written.
    """
    tensors = list(all_tensors(model))
    total = sum(tensor_bytes(t) for t in tensors if t.data_type != _STRING)
    beside = to.with_name(f"{to.name}.data")
    if total <= embed:
        for tensor in external_tensors(model):
            _embed(tensor, data)
        to.write_bytes(model.SerializeToString(deterministic=True))
        return (to,)
    with beside.open("xb") as stream:
        for tensor in tensors:
            _place(tensor, data, stream, beside.name)
    to.write_bytes(model.SerializeToString(deterministic=True))
    return to, beside


def attach(model: ModelProto, weights: Iterable[tuple[str, int, Sequence[int], Array]], to: Path) -> None:
    """Write a model with initialisers that it has not yet, one after another.

    Those of at least :data:`SMALL_BYTES` go into ``<name>.data`` beside the file, the others into the graph.

    Args:
        model: The model, changed in place.
        weights: Name, ONNX element type, dims and values of each; the values' bytes are what ONNX stores.
        to: ONNX file to write.

    Raises:
        OSError: A file cannot be written.
    """
    beside = to.with_name(f"{to.name}.data")
    with beside.open("wb") as stream:
        for name, kind, dims, values in weights:
            tensor = model.graph.initializer.add()
            tensor.name, tensor.data_type = name, kind
            tensor.dims.extend(dims)
            if values.nbytes < SMALL_BYTES:
                tensor.raw_data = values.tobytes()
                continue
            start = _aligned(stream)
            stream.write(values.data if values.ndim else values.tobytes())
            _refer(tensor, beside.name, start, values.nbytes)
    if not beside.stat().st_size:
        beside.unlink()
    to.write_bytes(model.SerializeToString(deterministic=True))


def _aligned(stream: BinaryIO) -> int:
    """Fill up to the next offset that a tensor may begin at."""
    start = -(-stream.tell() // ALIGNMENT) * ALIGNMENT
    stream.write(b"\0" * (start - stream.tell()))
    return start


def _refer(tensor: TensorProto, location: str, start: int, size: int) -> None:
    """Let a tensor's data lie in a file."""
    from onnx import TensorProto

    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(start)), ("length", str(size))):
        item = tensor.external_data.add()
        item.key, item.value = key, value


_STRING = 8
"""``TensorProto.STRING``, whose values are never external."""


def _name(tensor: TensorProto) -> str:
    from onnx import TensorProto

    return str(TensorProto.DataType.Name(tensor.data_type))


def _embed(tensor: TensorProto, data: Path) -> None:
    from onnx import TensorProto

    name, offset, length = entry(tensor)
    with (data / name).open("rb") as stream:
        stream.seek(offset)
        tensor.raw_data = stream.read(tensor_bytes(tensor) if length < 0 else length)
    del tensor.external_data[:]
    tensor.data_location = TensorProto.DEFAULT


def _place(tensor: TensorProto, data: Path, stream: BinaryIO, location: str) -> None:
    """Move one tensor's values to the end of the stream, or into the graph if they are few."""
    from onnx import TensorProto, numpy_helper

    size = 0 if tensor.data_type == _STRING else tensor_bytes(tensor)
    external = tensor.data_location == TensorProto.EXTERNAL
    if size < SMALL_BYTES:
        if external:
            _embed(tensor, data)
        return
    if not external and not tensor.HasField("raw_data") and _name(tensor) in _PACKED:
        return  # the graph holds such values in words of 32 bits, and few runtimes read them elsewhere
    start = _aligned(stream)
    if external:
        name, offset, _ = entry(tensor)
        with (data / name).open("rb") as source:
            source.seek(offset)
            left = size
            while left:
                piece = source.read(min(left, PIECE))
                if not piece:
                    raise OSError(f"{name} ended while tensor '{tensor.name}' was read from it")
                stream.write(piece)
                left -= len(piece)
    else:
        raw = tensor.raw_data if tensor.HasField("raw_data") else numpy_helper.to_array(tensor).tobytes()
        if len(raw) != size:
            raise ExternalDataUnsafe(
                [f"tensor '{tensor.name}' has {len(raw)} bytes, and its shape takes {size}"]
            )
        stream.write(raw)
        for field in _VALUES:
            tensor.ClearField(field)
    _refer(tensor, location, start, size)


_VALUES = (
    "raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data",
)  # fmt: skip
