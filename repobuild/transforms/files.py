"""ONNX files whose weights stay on disk: read as memory maps, written one tensor at a time.

External data is the format of onnx/onnx, docs/ExternalData.md: a tensor names a file beside the model, an
offset and a length.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from repobuild.errors import ConversionFailed, Evidence, InputInvalid, from_oserror
from repobuild.graph.walk import subgraphs
from repobuild.tensors import Array
from repobuild.transforms.interface import Size

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto

SMALL = 1024
"""Bytes up to which a tensor always lies in the ONNX file, where shape inference can read it."""
SPILL = 64 * 2**20
"""Bytes of an ONNX file above which its weights are moved out of memory while it is worked on."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the bytes of an external tensor lie."""

    path: Path
    offset: int
    length: int


class GraphFile:
    """An ONNX file, opened: the graph in memory, large weights on disk.

    Attributes:
        path: The file.
        proto: The graph. External tensors of at most :data:`SMALL` bytes have been read in.
        folder: The folder that holds the data files which ``proto`` names.
        external: Whether the file itself has external data.
        spilled: Whether its inline weights were moved to disk for the time being.
    """

    def __init__(self, path: Path, proto: ModelProto, folder: Path, *, external: bool) -> None:
        self.path, self.proto, self.folder, self.external = path, proto, folder, external
        self.spilled = False

    def copy(self) -> ModelProto:
        """The graph once more, to be changed; external weights are not copied."""
        from onnx import ModelProto

        proto = ModelProto()
        proto.CopyFrom(self.proto)
        return proto

    def array(self, tensor: TensorProto) -> Array:
        """A tensor's values: a read-only memory map if they are external."""
        import numpy as np
        from onnx import helper, numpy_helper

        if not is_external(tensor):
            return np.asarray(numpy_helper.to_array(tensor))
        where = place(tensor, self.folder)
        kind = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
        shape = tuple(tensor.dims)
        if _packed(tensor) or not where.length:
            whole = inlined(tensor, where)
            return np.asarray(numpy_helper.to_array(whole))
        if where.length != kind.itemsize * int(np.prod(shape, dtype=np.int64)):
            raise _unreadable(where.path, tensor.name, f"{where.length} bytes for shape {list(shape)}")
        return np.memmap(where.path, kind.newbyteorder("<"), "r", where.offset, shape)


@contextmanager
def opened(path: Path) -> Iterator[GraphFile]:
    """Open an ONNX file.

    Large inline weights are moved into a temporary folder for the time being, so that a transform holds
    the graph and one tensor in memory, whatever the size of the model. Model-local functions are inlined.

    Raises:
        ConversionFailed: ``graph-invalid``: the file is not an ONNX model.
        InputInvalid: ``external-data-unreadable``.
        EnvironmentLacking: The file system refuses.
    """
    with tempfile.TemporaryDirectory(prefix="repobuild-") as scratch:
        try:
            proto = _parse(path)
            external = any(is_external(tensor) for tensor in tensors_of(proto))
            graph = GraphFile(path, _read_small(proto, path.parent), path.parent, external=external)
            if not external and path.stat().st_size > SPILL:
                from repobuild.transforms.writing import Writer

                with Writer(graph, Path(scratch) / "model.onnx", external=True) as spill:
                    spill.settle(proto)
                graph.folder, graph.spilled = Path(scratch), True
            if proto.functions:
                graph.proto = _without_functions(proto)
        except OSError as problem:
            raise from_oserror(problem, "reading the graph") from problem
        yield graph


def tensors_of(proto: ModelProto) -> Iterator[TensorProto]:
    """All tensors of a graph that may hold weights, those in attributes and bodies included."""
    yield from _tensors(proto.graph)


def is_external(tensor: TensorProto) -> bool:
    """Whether its values lie in another file."""
    from onnx import TensorProto

    return bool(tensor.data_location == TensorProto.EXTERNAL)


def place(tensor: TensorProto, folder: Path) -> Place:
    """Where the values of an external tensor lie.

    Raises:
        InputInvalid: ``external-data-unreadable``: outside the folder, missing, or too short.
    """
    said = {entry.key: entry.value for entry in tensor.external_data}
    path = folder / said.get("location", "")
    if not said.get("location") or not path.resolve().is_relative_to(folder.resolve()):
        raise _unreadable(path, tensor.name, "the place is not inside the model's folder")
    if not path.is_file():
        raise _unreadable(path, tensor.name, "there is no such file")
    size = path.stat().st_size
    try:
        offset = int(said.get("offset", 0))
        length = int(said["length"]) if "length" in said else size - offset
    except ValueError as problem:
        raise _unreadable(path, tensor.name, f"offset or length is no number: {problem}") from problem
    if offset < 0 or length < 0 or offset + length > size:
        raise _unreadable(path, tensor.name, f"bytes {offset} to {offset + length} of {size}")
    return Place(path, offset, length)


def size_of(path: Path) -> Size:
    """How large an ONNX file is, with its data.

    Raises:
        ConversionFailed: The file is not an ONNX model.
        InputInvalid: Its external data is missing.
    """
    proto = _parse(path)
    data = {place(t, path.parent).path.resolve() for t in tensors_of(proto) if is_external(t)}
    return Size(count_nodes(proto.graph), path.stat().st_size + sum(p.stat().st_size for p in data))


def data_files(path: Path) -> tuple[Path, ...]:
    """The data files that an ONNX file names, sorted.

    Raises:
        InputInvalid: One is missing or outside the folder.
    """
    proto = _parse(path)
    return tuple(sorted({place(t, path.parent).path for t in tensors_of(proto) if is_external(t)}))


def count_nodes(graph: GraphProto) -> int:
    """The nodes of a graph, bodies included."""
    return sum(1 + sum(count_nodes(body) for body in subgraphs(node)) for node in graph.node)


@contextmanager
def mapped(stream: IO[bytes]) -> Iterator[memoryview]:
    """A file's bytes without reading them; empty for an empty file."""
    import os

    if not os.fstat(stream.fileno()).st_size:
        yield memoryview(b"")
        return
    with (
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as region,
        memoryview(region) as view,
    ):
        yield view


def _parse(path: Path) -> ModelProto:
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    proto = ModelProto()
    try:
        with path.open("rb") as stream, mapped(stream) as view:
            proto.ParseFromString(view)
    except OSError as problem:
        raise from_oserror(problem, "reading the graph") from problem
    except DecodeError as problem:
        raise _not_onnx(path, str(problem)) from problem
    if not proto.HasField("graph"):
        raise _not_onnx(path, "it holds no graph")
    return proto


def _not_onnx(path: Path, why: str) -> ConversionFailed:
    return ConversionFailed(
        "graph-invalid",
        "the file is not an ONNX model",
        (Evidence(why, file=path.name),),
        "this is a fault of what wrote it; write it anew",
    )


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for body in subgraphs(node):
            yield from _tensors(body)


def _read_small(proto: ModelProto, folder: Path) -> ModelProto:
    for tensor in tensors_of(proto):
        if is_external(tensor) and (where := place(tensor, folder)).length <= SMALL:
            tensor.CopyFrom(inlined(tensor, where))
    return proto


def inlined(tensor: TensorProto, where: Place) -> TensorProto:
    """An external tensor with its values in it."""
    from onnx import TensorProto

    whole = TensorProto()
    whole.CopyFrom(tensor)
    del whole.external_data[:]
    whole.ClearField("data_location")
    with where.path.open("rb") as stream:
        stream.seek(where.offset)
        whole.raw_data = stream.read(where.length)
    return whole


def _without_functions(proto: ModelProto) -> ModelProto:
    from onnx import inliner

    inlined: ModelProto = inliner.inline_local_functions(proto)
    return inlined


def _packed(tensor: TensorProto) -> bool:
    """Whether several elements share a byte."""
    from onnx import TensorProto

    return str(TensorProto.DataType.Name(tensor.data_type)).endswith(("INT4", "INT2", "4E2M1"))


def _unreadable(path: Path, tensor: str, why: str) -> InputInvalid:
    return InputInvalid(
        "external-data-unreadable",
        "the data file that the graph names cannot be used",
        (Evidence(f"tensor '{tensor}': {why}", file=path.name),),
        "keep the model's data files beside it, under the names that it was saved with",
    )
