"""Reads the interface of an ONNX file without its weights, from files of any size, in bounded memory.

An ONNX file is one protobuf message (``onnx.ModelProto``, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).
Its fields are walked in place: names, types, shapes, opsets, operators and the places of external data are
read, raw weights are skipped. Field numbers below are those of that file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

MOST_FIELDS = 5_000_000
"""Fields that are walked; a graph of a million nodes has fewer."""
LONGEST_TEXT = 1 << 16
DEEPEST = 32
MOST_AXES = 1024
MOST_PLACES = 10_000


class Damaged(Exception):
    """Raised when the bytes are no ONNX model.

    Attributes:
        truncated: Whether they look like the beginning of one.
    """

    def __init__(self, message: str, *, truncated: bool = False) -> None:
        super().__init__(message)
        self.truncated = truncated


class TooLarge(Exception):
    """Raised when there is more to read than lint reads."""


@dataclass(frozen=True, slots=True)
class OnnxTensor:
    """An input or output of a graph.

    Attributes:
        name: Its name.
        kind: ``tensor``, ``sequence``, ``map``, ``optional``, ``sparse``, ``opaque`` or ``untyped``.
        elem: ``TensorProto.DataType`` number; 0 when undefined.
        shape: Sizes, ``-1`` for free axes; ``None`` when no shape is declared.
        symbols: Names of the axes, empty where there is none.
    """

    name: str
    kind: str
    elem: int
    shape: tuple[int, ...] | None
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExternalData:
    """Weights in another file.

    Attributes:
        location: Path relative to the model file.
        end: Bytes that the file has to have.
    """

    location: str
    end: int


@dataclass(slots=True)
class OnnxInterface:
    """What an ONNX file says about itself.

    Attributes:
        ir: IR version.
        opsets: Opset by domain; the default domain is ``""``.
        inputs: Graph inputs that are not initialisers.
        initial: Graph inputs that have an initialiser, so that requests may leave them out.
        outputs: Graph outputs.
        operators: ``(domain, operator)`` of all nodes, those in sub-graphs included.
        functions: Domains of functions that the file brings along.
        external: Places of external data.
        size: Bytes of the file.
        inferred: Outputs whose shape was inferred from the operators as well; the reader leaves it empty.
    """

    ir: int = 0
    opsets: dict[str, int] = field(default_factory=dict)
    inputs: list[OnnxTensor] = field(default_factory=list)
    initial: list[OnnxTensor] = field(default_factory=list)
    outputs: list[OnnxTensor] = field(default_factory=list)
    operators: set[tuple[str, str]] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    external: dict[str, ExternalData] = field(default_factory=dict)
    size: int = 0
    inferred: set[str] = field(default_factory=set)


def read_interface(file: BinaryIO) -> OnnxInterface:
    """Read the interface of an ONNX file.

    Args:
        file: A seekable binary file.

    Raises:
        Damaged: It is no ONNX model.
        TooLarge: It has more fields than lint walks.
        OSError: It cannot be read.
    """
    size = file.seek(0, os.SEEK_END)
    reader = _Reader(file, size)
    try:
        return reader.model()
    except Damaged as problem:
        # Without an IR version, which exporters write first, the beginning is not that of a model either.
        problem.truncated = problem.truncated and reader.begun
        raise


class _Reader:
    """Walks protobuf's wire format (https://protobuf.dev/programming-guides/encoding)."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._fields = 0
        self._found = OnnxInterface(size=size)

    @property
    def begun(self) -> bool:
        """Whether a plausible IR version was read."""
        return 1 <= self._found.ir < 100

    def model(self) -> OnnxInterface:
        """The whole file."""
        found, graphs = self._found, 0
        for number, value, end in self._walk(0, self._size):
            if number == 1 and end is None:
                found.ir = value
            elif number == 7 and end is not None:
                graphs += 1
                self._graph(value, end, 0, top=True)
            elif number == 8 and end is not None:
                domain, version = self._opset(value, end)
                found.opsets[domain] = max(version, found.opsets.get(domain, 0))
            elif number == 25 and end is not None:
                self._function(value, end)
        if not graphs or not found.ir or (not found.inputs and not found.outputs and not found.initial):
            raise Damaged("it has no graph" if not graphs else "it lacks an IR version, inputs or outputs")
        return found

    def _walk(self, at: int, end: int) -> Iterator[tuple[int, int, int | None]]:
        """Fields of a message: ``(number, value, None)`` of numbers, ``(number, start, end)`` of bytes."""
        while at < end:
            self._fields += 1
            if self._fields > MOST_FIELDS:
                raise TooLarge
            self._file.seek(at)
            head = self._file.read(20)
            key, used = _varint(head, 0)
            number, wire = key >> 3, key & 7
            if number == 0:
                raise Damaged("it has a field without a number")
            if wire == 0:
                value, used = _varint(head, used)
                at += used
                if at > end:
                    raise Damaged("a field goes past the end of its message", truncated=end == self._size)
                yield number, value, None
            elif wire == 2:
                length, used = _varint(head, used)
                start, at = at + used, at + used + length
                if at > end:
                    raise Damaged(
                        f"a field of {length} bytes begins {end - start} bytes before the end",
                        truncated=at > self._size,
                    )
                yield number, start, at
            elif wire in (1, 5):
                at += used + (8 if wire == 1 else 4)
                if at > end:
                    raise Damaged("a field goes past the end of its message", truncated=at > self._size)
            else:
                raise Damaged(f"it has a field of the unknown wire type {wire}")

    def _text(self, start: int, end: int) -> str:
        self._file.seek(start)
        return self._file.read(min(end - start, LONGEST_TEXT)).decode("utf-8", "replace")

    def _opset(self, at: int, end: int) -> tuple[str, int]:
        domain, version = "", 0
        for number, value, stop in self._walk(at, end):
            if number == 1 and stop is not None:
                domain = self._text(value, stop)
            elif number == 2 and stop is None:
                version = value
        return "" if domain == "ai.onnx" else domain, version

    def _function(self, at: int, end: int) -> None:
        for number, value, stop in self._walk(at, end):
            if number == 10 and stop is not None:
                self._found.functions.add(self._text(value, stop))
            elif number == 7 and stop is not None:
                self._node(value, stop, 1)

    def _graph(self, at: int, end: int, depth: int, *, top: bool) -> None:
        if depth > DEEPEST:
            raise TooLarge
        inputs: list[OnnxTensor] = []
        initialisers: set[str] = set()
        for number, value, stop in self._walk(at, end):
            if stop is None:
                continue
            if number == 1:
                self._node(value, stop, depth)
            elif number == 5:
                initialisers.add(self._tensor(value, stop))
            elif number == 15:
                initialisers.add(self._sparse(value, stop))
            elif top and number == 11:
                inputs.append(self._value(value, stop))
            elif top and number == 12:
                self._found.outputs.append(self._value(value, stop))
        if top:
            self._found.inputs += [t for t in inputs if t.name not in initialisers]
            self._found.initial += [t for t in inputs if t.name in initialisers]

    def _node(self, at: int, end: int, depth: int) -> None:
        domain, operator = "", ""
        for number, value, stop in self._walk(at, end):
            if stop is None:
                continue
            if number == 4:
                operator = self._text(value, stop)
            elif number == 7:
                domain = self._text(value, stop)
            elif number == 5:
                self._attribute(value, stop, depth)
        if len(self._found.operators) < 100_000:
            self._found.operators.add(("" if domain == "ai.onnx" else domain, operator))

    def _attribute(self, at: int, end: int, depth: int) -> None:
        for number, value, stop in self._walk(at, end):
            if stop is None:
                continue
            if number in (6, 11):
                self._graph(value, stop, depth + 1, top=False)
            elif number in (5, 10):
                self._tensor(value, stop)
            elif number in (22, 23):
                self._sparse(value, stop)

    def _sparse(self, at: int, end: int) -> str:
        name = ""
        for number, value, stop in self._walk(at, end):
            if number in (1, 2) and stop is not None:
                found = self._tensor(value, stop)
                name = found if number == 1 else name
        return name

    def _tensor(self, at: int, end: int) -> str:
        """A TensorProto: its name; external data is noted."""
        name, outside = "", False
        data: dict[str, str] = {}
        for number, value, stop in self._walk(at, end):
            if number == 8 and stop is not None:
                name = self._text(value, stop)
            elif number == 13 and stop is not None:
                key, text = self._pair(value, stop)
                data[key] = text
            elif number == 14 and stop is None:
                outside = value == 1
        if outside and len(self._found.external) < MOST_PLACES:
            begin, length = _whole(data.get("offset")), _whole(data.get("length"))
            location = data.get("location", "")
            known = self._found.external.get(location)
            if known is None or known.end < begin + length:
                self._found.external[location] = ExternalData(location, begin + length)
        return name

    def _pair(self, at: int, end: int) -> tuple[str, str]:
        parts = {1: "", 2: ""}
        for number, value, stop in self._walk(at, end):
            if number in parts and stop is not None:
                parts[number] = self._text(value, stop)
        return parts[1], parts[2]

    def _value(self, at: int, end: int) -> OnnxTensor:
        name, kind, elem = "", "untyped", 0
        shape: tuple[int, ...] | None = None
        symbols: tuple[str, ...] = ()
        for number, value, stop in self._walk(at, end):
            if number == 1 and stop is not None:
                name = self._text(value, stop)
            elif number == 2 and stop is not None:
                kind, elem, shape, symbols = self._type(value, stop)
        return OnnxTensor(name, kind, elem, shape, symbols)

    def _type(self, at: int, end: int) -> tuple[str, int, tuple[int, ...] | None, tuple[str, ...]]:
        kinds = {1: "tensor", 4: "sequence", 5: "map", 7: "opaque", 8: "sparse", 9: "optional"}
        for number, value, stop in self._walk(at, end):
            if number not in kinds or stop is None:
                continue
            if number != 1:
                return kinds[number], 0, None, ()
            elem = 0
            shape: tuple[int, ...] | None = None
            symbols: tuple[str, ...] = ()
            for inner, item, last in self._walk(value, stop):
                if inner == 1 and last is None:
                    elem = item
                elif inner == 2 and last is not None:
                    shape, symbols = self._shape(item, last)
            return "tensor", elem, shape, symbols
        return "untyped", 0, None, ()

    def _shape(self, at: int, end: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
        sizes: list[int] = []
        symbols: list[str] = []
        for number, value, stop in self._walk(at, end):
            if number != 1 or stop is None:
                continue
            if len(sizes) >= MOST_AXES:
                raise TooLarge
            size, symbol = -1, ""
            for inner, item, last in self._walk(value, stop):
                if inner == 1 and last is None:
                    size = item - (1 << 64) if item >> 63 else item
                elif inner == 2 and last is not None:
                    symbol = self._text(item, last)
            sizes.append(size if size >= 0 else -1)
            symbols.append(symbol)
        return tuple(sizes), tuple(symbols)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    value = 0
    for index in range(10):
        if at + index >= len(data):
            raise Damaged("it ends within a field", truncated=True)
        byte = data[at + index]
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value & ((1 << 64) - 1), at + index + 1
    raise Damaged("it has a number of more than ten bytes")


def _whole(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 20 else 0
