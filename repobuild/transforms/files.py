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
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from repobuild.errors import ConversionFailed, Evidence, InputInvalid, evidence, from_oserror
from repobuild.graph.walk import subgraphs
from repobuild.tensors import Array
from repobuild.transforms.interface import Size

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto

SMALL = 1024
"""Bytes up to which a tensor always lies in the ONNX file, where shape inference can read it."""
SPILL = 64 * 2**20
"""Bytes of an ONNX file above which its weights are moved out of memory while it is worked on."""
_WRITTEN = "\0written"
"""Stands for the new data file until all is written: the old one may have the same name."""
LARGE, ALIGNMENT, PAGE = 2**20, 64, 4096
"""Tensors of at least ``LARGE`` bytes begin at a page of the data file, so that they can be mapped; others at
a multiple of ``ALIGNMENT``."""


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
            whole = _inline(tensor, where)
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
                with Writer(graph, Path(scratch) / "model.onnx", external=True) as spill:
                    spill.settle(proto)
                graph.folder, graph.spilled = Path(scratch), True
            if proto.functions:
                graph.proto = _without_functions(proto)
        except OSError as problem:
            raise from_oserror(problem, "reading the graph") from problem
        yield graph


class Writer:
    """Writes a changed graph, one tensor at a time.

    Args:
        source: The graph that the unchanged tensors come from.
        to: ONNX file to write; data goes into ``<to.name>.data``.
        external: Whether to write a data file; by default if the source has external data.
    """

    def __init__(self, source: GraphFile, to: Path, *, external: bool | None = None) -> None:
        self._source, self._to = source, to
        self._external = source.external if external is None else external
        self._data: IO[bytes] | None = None
        self._known: dict[tuple[object, ...], tuple[int, int]] = {}

    @property
    def data_path(self) -> Path:
        """The data file."""
        return self._to.with_name(f"{self._to.name}.data")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._data is not None:
            self._data.close()
        if kind is not None:
            self._to.unlink(missing_ok=True)
            self.data_path.unlink(missing_ok=True)

    def put(self, tensor: TensorProto, values: Array, data_type: int) -> None:
        """Give a tensor other values, and write them.

        Args:
            tensor: The tensor of the graph that is written.
            values: Its values, of the NumPy type that goes with ``data_type`` (``uint16`` for bfloat16).
            data_type: ONNX element type.
        """
        import numpy as np

        origin = _origin(tensor)
        tensor.data_type = data_type
        little = values.astype(values.dtype.newbyteorder("<"), copy=False)
        flat = np.ascontiguousarray(little).reshape(-1)
        self._store(tensor, flat.view(np.uint8).data, (*origin, data_type) if origin else None)

    def settle(self, proto: ModelProto) -> None:
        """Copy the tensors that were not given other values, and name the data file in all.

        Raises:
            InputInvalid: ``external-data-unreadable``.
            OSError: The data file cannot be written.
        """
        import numpy as np

        for tensor in tensors_of(proto):
            if is_external(tensor):
                if tensor.external_data[0].value == _WRITTEN:
                    tensor.external_data[0].value = self.data_path.name
                    continue
                where = place(tensor, self._source.folder)
                if not self._external or not where.length:
                    tensor.CopyFrom(_inline(tensor, where))
                    continue
                data = np.memmap(where.path, np.uint8, "r", where.offset, (where.length,))
                self._store(tensor, data.data, (*(_origin(tensor) or ()), tensor.data_type))
            elif self._external and tensor.HasField("raw_data") and len(tensor.raw_data) > SMALL:
                self._store(tensor, memoryview(tensor.raw_data), None)
            if is_external(tensor):
                tensor.external_data[0].value = self.data_path.name

    def finish(self, proto: ModelProto) -> None:
        """Copy the other tensors, and write the ONNX file.

        Raises:
            ConversionFailed: ``graph-too-large``: an ONNX file cannot hold it without external data.
            EnvironmentLacking: The file system refuses.
        """
        try:
            self.settle(proto)
            self._to.write_bytes(serialized(proto))
        except OSError as problem:
            raise from_oserror(problem, "writing the graph") from problem

    def _store(self, tensor: TensorProto, data: memoryview, origin: tuple[object, ...] | None) -> None:
        for field in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
            tensor.ClearField(field)
        if not self._external or len(data) <= SMALL:
            del tensor.external_data[:]
            tensor.ClearField("data_location")
            tensor.raw_data = bytes(data)
            return
        known = self._known.get(origin) if origin else None
        if known is None:
            if self._data is None:
                self._data = self.data_path.open("wb")
            step = PAGE if len(data) >= LARGE else ALIGNMENT
            start = -(-self._data.tell() // step) * step
            self._data.write(b"\0" * (start - self._data.tell()))
            self._data.write(data)
            self._data.flush()
            known = (start, len(data))
            if origin:
                self._known[origin] = known
        tensor.ClearField("raw_data")
        _refer(tensor, *known)


def serialized(proto: ModelProto) -> bytes:
    """The bytes of a graph.

    Raises:
        ConversionFailed: ``graph-too-large``: more than the 2 GiB that protobuf allows.
    """
    from google.protobuf.message import EncodeError

    try:
        data: bytes = proto.SerializeToString(deterministic=True)
    except (EncodeError, ValueError) as problem:
        raise ConversionFailed(
            "graph-too-large",
            "the graph does not fit into one ONNX file of 2 GiB",
            evidence([str(problem)[:200]]),
            "save the model with external data, so that its weights lie in a file beside it",
        ) from problem
    return data


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
            tensor.CopyFrom(_inline(tensor, where))
    return proto


def _inline(tensor: TensorProto, where: Place) -> TensorProto:
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


def _origin(tensor: TensorProto) -> tuple[object, ...] | None:
    if not is_external(tensor):
        return None
    return tuple(sorted((e.key, e.value) for e in tensor.external_data if e.key != "checksum"))


def _refer(tensor: TensorProto, offset: int, length: int) -> None:
    from onnx import TensorProto

    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", _WRITTEN), ("offset", str(offset)), ("length", str(length))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value


def _unreadable(path: Path, tensor: str, why: str) -> InputInvalid:
    return InputInvalid(
        "external-data-unreadable",
        "the data file that the graph names cannot be used",
        (Evidence(f"tensor '{tensor}': {why}", file=path.name),),
        "keep the model's data files beside it, under the names that it was saved with",
    )
