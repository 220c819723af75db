"""Reads a pickle's opcodes without running them, and says what loading it would import and call.

The scanner keeps a symbolic stack, so that names put together from strings (``STACK_GLOBAL``) are found, and
so that the raw array bytes that joblib writes between opcodes can be stepped over: after the opcode that
completes a ``NumpyArrayWrapper`` come an optional length byte with padding and the array's bytes, or, for
object arrays, a whole further pickle (joblib ``numpy_pickle.NumpyArrayWrapper.read_array``).
"""

from __future__ import annotations

import lzma
import pickletools
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any, cast

from repobuild.sources.containers import CountingStream, StreamTooLarge

MAX_DEPTH = 64
MAX_OPCODES = 50_000_000
WRAPPER = "joblib.numpy_pickle NumpyArrayWrapper"


@dataclass(frozen=True, slots=True)
class PickleScan:
    """What a pickle would do when loaded.

    Attributes:
        imports: ``module.name`` of everything it would import, sorted.
        calls: Those of them that it would call while loading, sorted.
        complete: Whether the stream was followed to its end.
        trouble: Why it was not, in words; empty when ``complete``.
        truncated: Whether the trouble is that the file ends too early.
    """

    imports: tuple[str, ...]
    calls: tuple[str, ...]
    complete: bool
    trouble: str = ""
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class _Global:
    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True)
class _Object:
    """The result of calling or building something: what made it, and its state if it was given one."""

    made_by: Any
    arguments: Any = None
    state: Any = None


@dataclass(slots=True)
class _Machine:
    stream: CountingStream
    imports: set[str]
    calls: set[str]
    depth: int = 0
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)


class _Lost(Exception):
    """Raised when the stream is no pickle that the scanner can follow."""


class _Ended(Exception):
    """Raised when the stream ends before its STOP opcode."""


def scan_pickle(stream: CountingStream) -> PickleScan:
    """Follow a pickle from its first opcode to its last without running any of it.

    Args:
        stream: The decompressed bytes, at their start.
    """
    imports: set[str] = set()
    calls: set[str] = set()
    trouble, truncated = "", False
    try:
        _follow(_Machine(stream, imports, calls))
    except _Ended as problem:
        trouble, truncated = str(problem), True
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as problem:
        trouble, truncated = f"the compressed stream is cut off or damaged: {problem}", True
    except StreamTooLarge:
        trouble = "the decompressed stream is larger than any model that can be loaded here"
    except _Lost as problem:
        trouble = str(problem)
    return PickleScan(tuple(sorted(imports)), tuple(sorted(calls)), not trouble, trouble, truncated)


def _follow(machine: _Machine) -> None:
    if machine.depth > MAX_DEPTH:
        raise _Lost("pickles are nested too deeply")
    source = cast("IO[bytes]", machine.stream)  # genops needs read, readline and tell only
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(source)):
            if count > MAX_OPCODES:
                raise _Lost(f"more than {MAX_OPCODES} opcodes")
            if opcode.name == "STOP":
                return
            step = _STEPS.get(opcode.name)
            if step is not None:
                step(machine, argument)
            elif opcode.name not in _IGNORED:
                _generic(machine, opcode, argument)
    except ValueError as problem:
        text = str(problem)
        if any(word in text for word in ("not enough data", "exhausted", "no newline", "expected")):
            raise _Ended(f"the file ends in the middle of the pickle ({text})") from None
        raise _Lost(f"not a pickle: {text}") from None
    except (IndexError, KeyError, TypeError, UnicodeDecodeError) as problem:
        raise _Lost(f"not a well-formed pickle: {type(problem).__name__} {problem}") from None


def _generic(machine: _Machine, opcode: pickletools.OpcodeInfo, argument: Any) -> None:
    """Constants and containers whose content does not matter here."""
    before, after = opcode.stack_before, opcode.stack_after
    if pickletools.markobject in before:
        _pop_mark(machine)
        named = before[: before.index(pickletools.markobject)]
    else:
        named = before
    kept = machine.stack[len(machine.stack) - len(named) :] if named else []
    if len(kept) < len(named):
        raise IndexError("stack underflow")
    if named:
        del machine.stack[len(machine.stack) - len(named) :]
    for index, _ in enumerate(after):
        machine.stack.append(kept[index] if index < len(kept) else argument)


def _pop_mark(machine: _Machine) -> list[Any]:
    at = machine.marks.pop()
    items = machine.stack[at:]
    del machine.stack[at:]
    return items


def _import(machine: _Machine, module: Any, name: Any) -> None:
    if not isinstance(module, str) or not isinstance(name, str):
        raise _Lost("it imports a name that is computed while loading")
    found = _Global(module, name)
    machine.imports.add(str(found))
    machine.stack.append(found)


def _call(machine: _Machine, target: Any, arguments: Any) -> None:
    made_by = target.made_by if isinstance(target, _Object) else target
    machine.calls.add(str(made_by) if isinstance(made_by, _Global) else "an object made while loading")
    machine.stack.append(_Object(made_by, arguments))


def _global(machine: _Machine, argument: str) -> None:
    module, _, name = argument.partition(" ")
    _import(machine, module, name)


def _stack_global(machine: _Machine, _: Any) -> None:
    name = machine.stack.pop()
    _import(machine, machine.stack.pop(), name)


def _inst(machine: _Machine, argument: str) -> None:
    items = _pop_mark(machine)
    _global(machine, argument)
    _call(machine, machine.stack.pop(), items)


def _obj(machine: _Machine, _: Any) -> None:
    items = _pop_mark(machine)
    _call(machine, items[0], items[1:])


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
        target.state = state
        maker = target.made_by
        if isinstance(maker, _Global) and f"{maker.module} {maker.name}" == WRAPPER:
            _skip_array(machine, state)


def _skip_array(machine: _Machine, state: Any) -> None:
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
        inner = _Machine(machine.stream, machine.imports, machine.calls, machine.depth + 1)
        _follow(inner)
        return
    size = _item_size(code, dtype.state)
    for length in shape:
        if not isinstance(length, int) or length < 0:
            raise _Lost("an array wrapper whose shape is not made of numbers")
        size *= length
    if state.get("numpy_array_alignment_bytes") is not None:
        padding = machine.stream.read(1)
        if not padding or not machine.stream.skip(padding[0]):
            raise _Ended("the file ends before the bytes of an array")
    if not machine.stream.skip(size):
        raise _Ended(f"the file ends inside an array of {size} bytes")


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
    if not number.isdigit():
        raise _Lost(f"an array of type '{code}', whose size is not known")
    return int(number) * (4 if code.lstrip("<>=|")[0] == "U" else 1)


def _memoize(machine: _Machine, _: Any) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _put(machine: _Machine, argument: int) -> None:
    machine.memo[argument] = machine.stack[-1]


def _get(machine: _Machine, argument: int) -> None:
    machine.stack.append(machine.memo[argument])


def _tuple(machine: _Machine, _: Any) -> None:
    machine.stack.append(tuple(_pop_mark(machine)))


def _tuple_of(count: int) -> Callable[[_Machine, Any], None]:
    def step(machine: _Machine, _: Any) -> None:
        if len(machine.stack) < count:
            raise IndexError("stack underflow")
        items = tuple(machine.stack[len(machine.stack) - count :])
        del machine.stack[len(machine.stack) - count :]
        machine.stack.append(items)

    return step


def _dict(machine: _Machine, _: Any) -> None:
    items = _pop_mark(machine)
    machine.stack.append(_pairs(items))


def _setitem(machine: _Machine, _: Any) -> None:
    value = machine.stack.pop()
    key = machine.stack.pop()
    if isinstance(machine.stack[-1], dict):
        machine.stack[-1].update(_pairs([key, value]))


def _setitems(machine: _Machine, _: Any) -> None:
    items = _pop_mark(machine)
    if isinstance(machine.stack[-1], dict):
        machine.stack[-1].update(_pairs(items))


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return {k: v for k, v in zip(items[::2], items[1::2], strict=False) if isinstance(k, str | int)}


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
    "POP_MARK": lambda machine, _: (_pop_mark(machine), None)[1],
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "TUPLE": _tuple,
    "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "DICT": _dict,
    "SETITEM": _setitem,
    "SETITEMS": _setitems,
    "NONE": lambda machine, _: machine.stack.append(None),
    "NEWTRUE": lambda machine, _: machine.stack.append(True),
    "NEWFALSE": lambda machine, _: machine.stack.append(False),
    "EXT1": _ext,
    "EXT2": _ext,
    "EXT4": _ext,
}
_IGNORED = frozenset({"PROTO", "FRAME"})
