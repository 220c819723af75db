"""Reads the arguments of opcodes, in the forms that :mod:`pickletools` describes."""

from __future__ import annotations

import codecs
import pickle
import pickletools
from collections.abc import Callable
from typing import Any

from repobuild.sources.opcodes.limits import MAX_ITEMS, MAX_TEXT_BYTES
from repobuild.sources.opcodes.machine import UNKNOWN, Machine, Reader
from repobuild.sources.opcodes.traces import BLOB_STARTS, LONGEST_BLOB, note_blob

BYTES_LOOKED_AT = 2
"""Leading bytes of a byte string that are kept; the first opcode of a function tells Python's version."""


def reader_of(opcode: pickletools.OpcodeInfo) -> Reader | None:
    """What reads an opcode's argument; ``None`` for one that has none.

    Arguments that cannot matter are skipped over and read as :data:`UNKNOWN`, so that their length takes no
    memory.
    """
    argument = opcode.arg
    if argument is None:
        return None
    if argument.name == "stringnl_noescape_pair":
        return _two_lines
    if argument.n == pickletools.UP_TO_NEWLINE:
        return _line(_LINES[argument.name])
    if argument.n in _PREFIXES:
        return _counted(_PREFIXES[argument.n], argument.name)
    if argument.name.startswith("float"):
        return _skip_fixed(argument.n)
    return _number(argument.n, signed=argument.name.startswith("int"))


def _number(size: int, *, signed: bool = False) -> Callable[[Machine], int]:
    def read(machine: Machine) -> int:
        return int.from_bytes(machine.stream.read(size), "little", signed=signed)

    return read


def _skip_fixed(size: int) -> Reader:
    def read(machine: Machine) -> Any:
        machine.stream.skip(size)
        return UNKNOWN

    return read


def _counted(prefix: int, kind: str) -> Reader:
    """Reader of an argument after its own length, which is ``prefix`` bytes of little-endian integer."""
    signed = kind in ("string4", "long4")
    keep = {"u": MAX_TEXT_BYTES, "s": MAX_TEXT_BYTES, "l": MAX_ITEMS}.get(kind[0], -1)

    def read(machine: Machine) -> Any:
        size = int.from_bytes(machine.stream.read(prefix), "little", signed=signed)
        if size < 0:
            raise ValueError("a length below zero")
        if kind[0] == "b" and size >= BYTES_LOOKED_AT:
            start = machine.stream.read(BYTES_LOOKED_AT)
            machine.budget.keep(40)
            more = min(size - BYTES_LOOKED_AT, LONGEST_BLOB) if start in BLOB_STARTS else 0
            if more:
                note_blob(machine.found, machine.stream.read(more))
            machine.stream.skip(size - BYTES_LOOKED_AT - more)
            return start
        if size > keep:
            machine.stream.skip(size)
            return UNKNOWN
        data = machine.stream.read(size)
        if kind.startswith("long"):
            return pickle.decode_long(data)
        machine.budget.keep(64 + size)
        return data.decode("utf-8", "surrogatepass") if kind[0] == "u" else data.decode("latin-1")

    return read


def _line(decode: Callable[[bytes], Any]) -> Reader:
    def read(machine: Machine) -> Any:
        line = machine.stream.line(MAX_TEXT_BYTES)
        if line is None:
            return UNKNOWN
        machine.budget.keep(64 + len(line) if len(line) > MAX_ITEMS else 0)
        return decode(line)

    return read


def _two_lines(machine: Machine) -> tuple[Any, Any]:
    read = _line(lambda line: line.decode("utf-8"))
    return read(machine), read(machine)


def _digits(line: bytes) -> int:
    return line == b"01" if line in (b"00", b"01") else int(line, 0)


def _quoted(line: bytes) -> str:
    line = line.strip()
    if len(line) < 2 or line[0] != line[-1] or line[:1] not in (b"'", b'"'):
        raise ValueError("a text without its quotes")
    return codecs.escape_decode(line[1:-1])[0].decode("ascii")


_LINES: dict[str, Callable[[bytes], Any]] = {
    "decimalnl_short": _digits,
    "decimalnl_long": lambda line: int(line.removesuffix(b"L"), 0),
    "floatnl": lambda _: UNKNOWN,
    "stringnl": _quoted,
    "stringnl_noescape": lambda _: UNKNOWN,
    "unicodestringnl": lambda line: line.decode("raw-unicode-escape"),
}
_PREFIXES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
