"""Reads a pickle's opcodes without running them, and says what loading it would import and call.

The scanner keeps a symbolic stack, so that names put together from strings (``STACK_GLOBAL``) are found, and
so that the raw array bytes that joblib writes between opcodes can be stepped over: after the opcode that
completes a ``NumpyArrayWrapper`` come an optional length byte with padding and the array's bytes, or, for
object arrays, a whole further pickle (joblib ``numpy_pickle.NumpyArrayWrapper.read_array``).

It runs on files that nobody vouched for, so a file decides neither its time nor its memory: arguments that
cannot matter are skipped over rather than read, containers hold only what array wrappers are read from, and
all pickles nested in one file share one :class:`_Budget`.
"""

from __future__ import annotations

import codecs
import lzma
import pickle
import pickletools
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from repobuild.sources.containers import CountingStream, StreamEnded, StreamTooLarge, StreamUnreadable

MAX_DEPTH = 64
MAX_OPCODES = 20_000_000
"""Opcodes of a file, nested pickles included. A forest of 500 trees has 82 thousand in a plain pickle, since
its trees are arrays; a text vectorizer has three a word."""

MAX_HELD = 4_000_000
"""Entries of all stacks and memos at one time."""

MAX_KEPT_BYTES = 1 << 28
"""Memory that texts, tuples, dictionaries and objects may take in a whole scan, freed or not."""

MAX_TEXT_BYTES = 4096
"""Longest text, or line of digits, that is looked at; a longer one cannot be the name of an import."""

MAX_ITEMS = 64
"""Longest tuple, and longest binary integer in bytes, that is looked at."""

WRAPPER = "joblib.numpy_pickle NumpyArrayWrapper"
WRAPPER_KEYS = frozenset({"dtype", "shape", "numpy_array_alignment_bytes"})
CHECK_EVERY = 1024


@dataclass(frozen=True, slots=True)
class PickleScan:
    """What a pickle would do when loaded.

    Attributes:
        imports: ``module.name`` of everything it would import, sorted; what was found so far when the scan is
            not ``complete``.
        calls: Those of them that it would call while loading, sorted.
        complete: Whether the stream was followed to its end.
        trouble: Why it was not, in words; empty when ``complete``.
        truncated: Whether the trouble is that the file ends too early.
        malformed: Whether the trouble is that no unpickler could read on either.
    """

    imports: tuple[str, ...]
    calls: tuple[str, ...]
    complete: bool
    trouble: str = ""
    truncated: bool = False
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class _Global:
    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class _Unknown:
    """Any value that is not looked at."""


_UNKNOWN = _Unknown()


@dataclass(slots=True)
class _Object:
    """The result of calling something: what made it, from what, and its state where that is a tuple."""

    made_by: _Global | _Unknown
    arguments: Any = _UNKNOWN
    state: Any = _UNKNOWN


@dataclass(slots=True)
class _Budget:
    """What is left for the rest of a file."""

    opcodes: int
    kept_bytes: int

    def keep(self, size: int) -> None:
        self.kept_bytes -= size
        if self.kept_bytes < 0:
            raise _Lost(f"it holds more names and objects than the scan keeps ({MAX_KEPT_BYTES >> 20} MiB)")


@dataclass(slots=True)
class _Machine:
    stream: CountingStream
    imports: set[str]
    calls: set[str]
    budget: _Budget
    depth: int = 0
    outer_held: int = 0
    frame_end: int = 0
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def held(self) -> int:
        """Entries of this machine and of those around it."""
        return self.outer_held + len(self.stack) + len(self.marks) + len(self.memo)

    def check(self) -> None:
        if self.budget.opcodes <= 0:
            raise _Lost(f"it has more than {MAX_OPCODES} opcodes")
        if self.held() > MAX_HELD:
            raise _Lost(f"it has more than {MAX_HELD} objects under way at one time")


class _Lost(Exception):
    """Raised when the scanner cannot follow the stream, though an unpickler might."""


class _Malformed(Exception):
    """Raised when the stream is no pickle from here on."""


class _Ended(Exception):
    """Raised when the stream ends before its STOP opcode."""


def scan_pickle(stream: CountingStream) -> PickleScan:
    """Follow a pickle from its first opcode to its last without running any of it.

    Args:
        stream: The decompressed bytes, at their start.
    """
    imports: set[str] = set()
    calls: set[str] = set()
    trouble, truncated, malformed = "", False, False
    try:
        _follow(_Machine(stream, imports, calls, _Budget(MAX_OPCODES, MAX_KEPT_BYTES)))
    except _Ended as problem:
        trouble, truncated = str(problem), True
    except StreamEnded:
        trouble, truncated = "the file ends in the middle of the pickle", True
    except EOFError as problem:
        trouble, truncated = f"the compressed stream is cut off: {problem}", True
    except (lzma.LZMAError, zlib.error, OSError) as problem:
        trouble = f"the compressed stream cannot be read: {problem}"
    except StreamTooLarge:
        trouble = "it is larger than what the scan reads (16 GiB, or 4 GiB after decompression)"
    except StreamUnreadable:
        trouble = "it is compressed in a way that only joblib reads"
    except _Malformed as problem:
        trouble, malformed = str(problem), True
    except _Lost as problem:
        trouble = str(problem)
    except MemoryError:
        trouble = "the scan of it ran out of memory"
    except RecursionError:
        trouble = "its parts are nested too deeply"
    found = tuple(sorted(imports)), tuple(sorted(calls))
    return PickleScan(*found, not trouble, trouble, truncated, malformed)


def _follow(machine: _Machine) -> None:
    if machine.depth > MAX_DEPTH:
        raise _Lost("pickles are nested too deeply")
    stream, budget = machine.stream, machine.budget
    try:
        while True:
            budget.opcodes -= 1
            if not budget.opcodes % CHECK_EVERY:
                machine.check()
            code = stream.byte()
            if code == STOP:
                return
            entry = _TABLE[code]
            if entry is None:
                raise _Malformed(f"not a pickle: at byte {stream.tell() - 1}, {bytes([code])!r} is no opcode")
            read, step = entry
            step(machine, None if read is None else read(machine))
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as problem:
        raise _Malformed(f"not a well-formed pickle: {type(problem).__name__} {problem}") from None


def _number(size: int, *, signed: bool = False) -> Callable[[_Machine], int]:
    def read(machine: _Machine) -> int:
        return int.from_bytes(machine.stream.read(size), "little", signed=signed)

    return read


def _skip_fixed(size: int) -> Callable[[_Machine], Any]:
    def read(machine: _Machine) -> Any:
        machine.stream.skip(size)
        return _UNKNOWN

    return read


def _counted(prefix: int, kind: str) -> Callable[[_Machine], Any]:
    """Reader of an argument after its own length, which is ``prefix`` bytes of little-endian integer."""
    signed = kind in ("string4", "long4")
    keep = {"u": MAX_TEXT_BYTES, "s": MAX_TEXT_BYTES, "l": MAX_ITEMS}.get(kind[0], -1)

    def read(machine: _Machine) -> Any:
        size = int.from_bytes(machine.stream.read(prefix), "little", signed=signed)
        if size < 0:
            raise ValueError("a length below zero")
        if size > keep:
            machine.stream.skip(size)
            return _UNKNOWN
        data = machine.stream.read(size)
        if kind.startswith("long"):
            return pickle.decode_long(data)
        machine.budget.keep(64 + size)
        return data.decode("utf-8", "surrogatepass") if kind[0] == "u" else data.decode("latin-1")

    return read


def _line(decode: Callable[[bytes], Any]) -> Callable[[_Machine], Any]:
    def read(machine: _Machine) -> Any:
        line = machine.stream.line(MAX_TEXT_BYTES)
        if line is None:
            return _UNKNOWN
        machine.budget.keep(64 + len(line) if len(line) > MAX_ITEMS else 0)
        return decode(line)

    return read


def _two_lines(machine: _Machine) -> tuple[Any, Any]:
    read = _line(lambda line: line.decode("utf-8"))
    return read(machine), read(machine)


def _digits(line: bytes) -> int:
    return line == b"01" if line in (b"00", b"01") else int(line)


def _quoted(line: bytes) -> str:
    line = line.strip()
    if len(line) < 2 or line[0] != line[-1] or line[:1] not in (b"'", b'"'):
        raise ValueError("a text without its quotes")
    return codecs.escape_decode(line[1:-1])[0].decode("ascii")


_LINES: dict[str, Callable[[bytes], Any]] = {
    "decimalnl_short": _digits,
    "decimalnl_long": lambda line: int(line.removesuffix(b"L")),
    "floatnl": lambda _: _UNKNOWN,
    "stringnl": _quoted,
    "stringnl_noescape": lambda _: _UNKNOWN,
    "unicodestringnl": lambda line: line.decode("raw-unicode-escape"),
}
_PREFIXES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}


def _reader(opcode: pickletools.OpcodeInfo) -> Callable[[_Machine], Any] | None:
    """What reads an opcode's argument, in the forms that :mod:`pickletools` describes."""
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


def _other(opcode: pickletools.OpcodeInfo) -> Callable[[_Machine, Any], None]:
    """The step of a constant, or of a container whose content does not matter here."""
    before = opcode.stack_before
    marked = pickletools.markobject in before
    count = before.index(pickletools.markobject) if marked else len(before)
    pushes = len(opcode.stack_after)

    def step(machine: _Machine, argument: Any) -> None:
        if marked:
            _drop_mark(machine)
        stack = machine.stack
        if len(stack) < count:
            raise IndexError("stack underflow")
        del stack[len(stack) - count :]
        if pushes:
            stack.append(_UNKNOWN if argument is None else argument)

    return step


def _drop_mark(machine: _Machine) -> None:
    del machine.stack[machine.marks.pop() :]


def _pop_mark(machine: _Machine) -> list[Any]:
    at = machine.marks.pop()
    items = machine.stack[at:]
    del machine.stack[at:]
    return items


def _small(machine: _Machine, items: list[Any]) -> Any:
    """A tuple of those items that array wrappers are read from, so that nothing kept is nested deeply."""
    if len(items) > MAX_ITEMS:
        return _UNKNOWN
    machine.budget.keep(64 + 40 * len(items))
    return tuple(i if i is None or isinstance(i, str | int | _Global) else _UNKNOWN for i in items)


def _import(machine: _Machine, module: Any, name: Any) -> None:
    if not isinstance(module, str) or not isinstance(name, str):
        raise _Lost("it imports a name that is computed while loading")
    found = _Global(module, name)
    text = str(found)
    machine.budget.keep(64 if text in machine.imports else 256 + len(text))
    machine.imports.add(text)
    machine.stack.append(found)


def _call(machine: _Machine, target: Any, arguments: Any) -> None:
    made_by = target.made_by if isinstance(target, _Object) else target
    machine.calls.add(str(made_by) if isinstance(made_by, _Global) else "an object made while loading")
    kept = arguments if isinstance(arguments, tuple) else _UNKNOWN
    if isinstance(made_by, _Global) and made_by.name == "_reconstructor" and isinstance(kept, tuple):
        made_by = kept[0]  # protocols 0 and 1: copyreg._reconstructor(class, object, None)
    machine.budget.keep(64)
    machine.stack.append(_Object(made_by if isinstance(made_by, _Global) else _UNKNOWN, kept))


def _global(machine: _Machine, argument: tuple[Any, Any]) -> None:
    _import(machine, *argument)


def _stack_global(machine: _Machine, _: Any) -> None:
    name = machine.stack.pop()
    _import(machine, machine.stack.pop(), name)


def _inst(machine: _Machine, argument: tuple[Any, Any]) -> None:
    items = _small(machine, _pop_mark(machine))
    _global(machine, argument)
    _call(machine, machine.stack.pop(), items)


def _obj(machine: _Machine, _: Any) -> None:
    items = _pop_mark(machine)
    _call(machine, items[0], _small(machine, items[1:]))


def _reduce(machine: _Machine, _: Any) -> None:
    arguments = machine.stack.pop()
    _call(machine, machine.stack.pop(), arguments)


def _newobj_ex(machine: _Machine, _: Any) -> None:
    del machine.stack[-1]
    _reduce(machine, None)


def _build(machine: _Machine, _: Any) -> None:
    state = machine.stack.pop()
    target = machine.stack[-1]
    if isinstance(target, _Object):
        target.state = state if isinstance(state, tuple) else _UNKNOWN
        maker = target.made_by
        if isinstance(maker, _Global) and f"{maker.module} {maker.name}" == WRAPPER:
            _skip_array(machine, state)


def _frame(machine: _Machine, size: int) -> None:
    machine.frame_end = machine.stream.tell() + size


def _skip_array(machine: _Machine, state: Any) -> None:
    if machine.stream.tell() < machine.frame_end:
        raise _Lost("an array wrapper in the middle of a frame")
    if not isinstance(state, dict):
        raise _Lost("an array wrapper without the state that joblib gives it")
    dtype = state.get("dtype")
    shape = state.get("shape")
    if (
        not isinstance(dtype, _Object)
        or not isinstance(dtype.arguments, tuple)
        or not isinstance(shape, tuple)
    ):
        raise _Lost("an array wrapper whose type or shape cannot be read")
    code = dtype.arguments[0] if dtype.arguments else None
    if not isinstance(code, str):
        raise _Lost("an array wrapper whose type is not named")
    if code.startswith("O"):
        inner = _Machine(
            machine.stream,
            machine.imports,
            machine.calls,
            machine.budget,
            machine.depth + 1,
            machine.held(),
        )
        _follow(inner)
        return
    size = _item_size(code, dtype.state)
    for length in shape:
        if not isinstance(length, int) or length < 0:
            raise _Lost("an array wrapper whose shape is not made of numbers")
        size *= length
    try:
        if state.get("numpy_array_alignment_bytes") is not None:
            machine.stream.skip(machine.stream.byte())
        machine.stream.skip(size)
    except StreamEnded:
        raise _Ended(f"the file ends inside an array of {size} bytes") from None


def _item_size(code: str, state: Any) -> int:
    """Bytes of one element of ``numpy.dtype(code)``; structured types carry it in their state."""
    digits = code.lstrip("<>=|")[1:]
    if (
        code.lstrip("<>=|")[:1] == "V"
        and isinstance(state, tuple)
        and len(state) > 5
        and isinstance(state[5], int)
    ):
        return state[5]
    number = digits.partition("[")[0]
    if not number.isdecimal() or len(number) > 18:
        raise _Lost(f"an array of type '{code}', whose size is not known")
    return int(number) * (4 if code.lstrip("<>=|")[0] == "U" else 1)


def _memoize(machine: _Machine, _: Any) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _put(machine: _Machine, argument: int) -> None:
    machine.memo[argument] = machine.stack[-1]


def _get(machine: _Machine, argument: int) -> None:
    machine.stack.append(machine.memo[argument])


def _tuple(machine: _Machine, _: Any) -> None:
    machine.stack.append(_small(machine, _pop_mark(machine)))


def _tuple_of(count: int) -> Callable[[_Machine, Any], None]:
    def step(machine: _Machine, _: Any) -> None:
        if len(machine.stack) < count:
            raise IndexError("stack underflow")
        items = machine.stack[len(machine.stack) - count :]
        del machine.stack[len(machine.stack) - count :]
        machine.stack.append(_small(machine, items))

    return step


def _empty_dict(machine: _Machine, _: Any) -> None:
    machine.budget.keep(64)
    machine.stack.append({})


def _dict(machine: _Machine, _: Any) -> None:
    items = _pop_mark(machine)
    _empty_dict(machine, None)
    _update(machine, items)


def _setitem(machine: _Machine, _: Any) -> None:
    value = machine.stack.pop()
    key = machine.stack.pop()
    _update(machine, [key, value])


def _setitems(machine: _Machine, _: Any) -> None:
    _update(machine, _pop_mark(machine))


def _update(machine: _Machine, items: list[Any]) -> None:
    """Put into the dictionary on the stack what an array wrapper's state is read from."""
    target = machine.stack[-1]
    if isinstance(target, dict):
        for key, value in zip(items[::2], items[1::2], strict=False):
            if isinstance(key, str) and key in WRAPPER_KEYS:
                if not target:
                    machine.budget.keep(256)
                target[key] = _UNKNOWN if isinstance(value, dict) else value


def _pop(machine: _Machine, _: Any) -> None:
    if machine.marks and machine.marks[-1] == len(machine.stack):
        machine.marks.pop()
    else:
        machine.stack.pop()


def _ext(machine: _Machine, argument: int) -> None:
    _import(machine, "copyreg", f"extension_{argument}")


_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "INST": _inst,
    "OBJ": _obj,
    "REDUCE": _reduce,
    "NEWOBJ": _reduce,
    "NEWOBJ_EX": _newobj_ex,
    "BUILD": _build,
    "MEMOIZE": _memoize,
    "PUT": _put,
    "BINPUT": _put,
    "LONG_BINPUT": _put,
    "GET": _get,
    "BINGET": _get,
    "LONG_BINGET": _get,
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "POP": _pop,
    "POP_MARK": lambda machine, _: _drop_mark(machine),
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "TUPLE": _tuple,
    "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "EMPTY_DICT": _empty_dict,
    "DICT": _dict,
    "SETITEM": _setitem,
    "SETITEMS": _setitems,
    "NONE": lambda machine, _: machine.stack.append(None),
    "NEWTRUE": lambda machine, _: machine.stack.append(True),
    "NEWFALSE": lambda machine, _: machine.stack.append(False),
    "PROTO": lambda machine, _: None,
    "FRAME": _frame,
    "EXT1": _ext,
    "EXT2": _ext,
    "EXT4": _ext,
}
STOP = pickle.STOP[0]
_OPCODES: list[pickletools.OpcodeInfo] = pickletools.opcodes
_TABLE: list[tuple[Callable[[_Machine], Any] | None, Callable[[_Machine, Any], None]] | None] = [None] * 256
for _opcode in _OPCODES:
    _TABLE[ord(_opcode.code)] = (_reader(_opcode), _STEPS.get(_opcode.name) or _other(_opcode))
