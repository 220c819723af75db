"""Writes changed graphs, one tensor at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from repobuild.errors import ConversionFailed, evidence, from_oserror
from repobuild.tensors import Array
from repobuild.transforms.files import SMALL, GraphFile, inlined, is_external, place, tensors_of

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

LARGE, ALIGNMENT, PAGE = 2**20, 64, 4096
"""Tensors of at least ``LARGE`` bytes begin at a page of the data file, so that they can be mapped; others at
a multiple of ``ALIGNMENT``."""
_WRITTEN = "\0written"
"""Stands for the new data file until all is written: the old one may have the same name."""


@contextmanager
def all_or_nothing(to: Path) -> Iterator[None]:
    """Remove an ONNX file and its data if what follows its writing fails."""
    try:
        yield
    except BaseException:
        to.unlink(missing_ok=True)
        to.with_name(f"{to.name}.data").unlink(missing_ok=True)
        raise


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
                    tensor.CopyFrom(inlined(tensor, where))
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


def _refer(tensor: TensorProto, offset: int, length: int) -> None:
    from onnx import TensorProto

    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", _WRITTEN), ("offset", str(offset)), ("length", str(length))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value


def _origin(tensor: TensorProto) -> tuple[object, ...] | None:
    if not is_external(tensor):
        return None
    return tuple(sorted((e.key, e.value) for e in tensor.external_data if e.key != "checksum"))
