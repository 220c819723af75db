"""What each opcode does to the machine's stack and memo."""

from __future__ import annotations

import pickletools
from collections.abc import Mapping
from typing import Any

from repobuild.sources.opcodes.arguments import reader_of
from repobuild.sources.opcodes.arrays import (
    WRAPPER,
    WRAPPER_KEYS,
    reads_on,
    refuse_loose,
    skip_array,
)
from repobuild.sources.opcodes.limits import MAX_ITEMS
from repobuild.sources.opcodes.machine import UNKNOWN, Global, Lost, Machine, Object, Reader, Step, Table
from repobuild.sources.opcodes.traces import VERSION_KEYS, note_call, note_entry, note_import


def _other(opcode: pickletools.OpcodeInfo) -> Step:
    """The step of a constant, or of a container whose content does not matter here."""
    before = opcode.stack_before
    marked = pickletools.markobject in before
    count = before.index(pickletools.markobject) if marked else len(before)
    pushes = len(opcode.stack_after)

    def step(machine: Machine, argument: Any) -> None:
        if marked:
            for item in machine.pop_mark():
                refuse_loose(item)
        stack = machine.stack
        if len(stack) < count:
            raise IndexError("stack underflow")
        for item in stack[len(stack) - count :]:
            refuse_loose(item)
        del stack[len(stack) - count :]
        if pushes:
            stack.append(UNKNOWN if argument is None else argument)

    return step


def _small(machine: Machine, items: list[Any]) -> Any:
    """A tuple of those items that are looked at later, so that nothing kept is nested deeply."""
    if len(items) > MAX_ITEMS:
        for item in items:
            refuse_loose(item)
        return UNKNOWN
    machine.budget.keep(64 + 40 * len(items))
    for item in items:
        if not isinstance(item, Global):  # the arguments of _reconstructor hold the class itself
            refuse_loose(item)
    return tuple(i if i is None or isinstance(i, str | int | bytes | Global) else UNKNOWN for i in items)


def _import(machine: Machine, module: Any, name: Any) -> None:
    if not isinstance(module, str) or not isinstance(name, str):
        raise Lost("it imports a name that is computed while loading")
    imported = Global(module, name)
    text = str(imported)
    if reads_on(imported) and (imported.module, imported.name) != tuple(WRAPPER.rsplit(".", 1)):
        machine.found.imports.add(text)
        raise Lost(f"{text} makes joblib read further files, or in ways that are not followed")
    imports = machine.found.imports
    machine.budget.keep(64 if text in imports else 256 + len(text))
    if text not in imports:
        imports.add(text)
        note_import(machine.found, text)
    machine.stack.append(imported)


def _call(machine: Machine, target: Any, arguments: Any) -> None:
    made_by = target.made_by if isinstance(target, Object) else target
    machine.found.calls.add(str(made_by) if isinstance(made_by, Global) else "an object made while loading")
    kept = arguments if isinstance(arguments, tuple) else UNKNOWN
    note_call(machine.found, target, kept)
    if isinstance(made_by, Global) and made_by.name == "_reconstructor" and isinstance(kept, tuple):
        made_by = kept[0]  # protocols 0 and 1: copyreg._reconstructor(class, object, None)
    else:
        refuse_loose(kept)
    machine.budget.keep(64)
    machine.stack.append(Object(made_by if isinstance(made_by, Global) else UNKNOWN, kept))


def _global(machine: Machine, argument: tuple[Any, Any]) -> None:
    _import(machine, *argument)


def _stack_global(machine: Machine, _: Any) -> None:
    name = machine.stack.pop()
    _import(machine, machine.stack.pop(), name)


def _inst(machine: Machine, argument: tuple[Any, Any]) -> None:
    items = _small(machine, machine.pop_mark())
    _global(machine, argument)
    _call(machine, machine.stack.pop(), items)


def _obj(machine: Machine, _: Any) -> None:
    items = machine.pop_mark()
    _call(machine, items[0], _small(machine, items[1:]))


def _reduce(machine: Machine, _: Any) -> None:
    arguments = machine.stack.pop()
    _call(machine, machine.stack.pop(), arguments)


def _newobj_ex(machine: Machine, _: Any) -> None:
    del machine.stack[-1]
    _reduce(machine, None)


def _build(machine: Machine, _: Any) -> None:
    state = machine.stack.pop()
    target = machine.stack[-1]
    if isinstance(target, Object):
        target.state = state if isinstance(state, tuple) else UNKNOWN
        target.built = True
        maker = target.made_by
        if isinstance(maker, Global) and str(maker) == WRAPPER:
            skip_array(machine, state)
            machine.stack[-1] = UNKNOWN  # the array; the memo keeps the wrapper
        else:
            refuse_loose(state)


def _frame(machine: Machine, size: int) -> None:
    machine.frame_end = machine.stream.tell() + size


def _memoize(machine: Machine, _: Any) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _put(machine: Machine, argument: int) -> None:
    machine.memo[argument] = machine.stack[-1]


def _get(machine: Machine, argument: int) -> None:
    machine.stack.append(machine.memo[argument])


def _tuple(machine: Machine, _: Any) -> None:
    machine.stack.append(_small(machine, machine.pop_mark()))


def _tuple_of(count: int) -> Step:
    def step(machine: Machine, _: Any) -> None:
        if len(machine.stack) < count:
            raise IndexError("stack underflow")
        items = machine.stack[len(machine.stack) - count :]
        del machine.stack[len(machine.stack) - count :]
        machine.stack.append(_small(machine, items))

    return step


def _empty_dict(machine: Machine, _: Any) -> None:
    machine.budget.keep(64)
    machine.stack.append({})


def _dict(machine: Machine, _: Any) -> None:
    items = machine.pop_mark()
    for item in items:
        refuse_loose(item)
    _empty_dict(machine, None)
    _update(machine, items)


def _setitem(machine: Machine, _: Any) -> None:
    value = machine.stack.pop()
    key = machine.stack.pop()
    refuse_loose(value)
    _update(machine, [key, value])


def _setitems(machine: Machine, _: Any) -> None:
    items = machine.pop_mark()
    for item in items:
        refuse_loose(item)
    _update(machine, items)


def _update(machine: Machine, items: list[Any]) -> None:
    """Put into the dictionary on the stack what an array wrapper's state is read from."""
    target = machine.stack[-1]
    if isinstance(target, dict):
        for key, value in zip(items[::2], items[1::2], strict=False):
            if not isinstance(key, str):
                continue
            if key in WRAPPER_KEYS:
                if not target:
                    machine.budget.keep(256)
                target[key] = UNKNOWN if isinstance(value, dict) else value
            elif key in VERSION_KEYS:
                note_entry(machine.found, key, value)


def _pop(machine: Machine, _: Any) -> None:
    if machine.marks and machine.marks[-1] == len(machine.stack):
        machine.marks.pop()
    else:
        machine.stack.pop()


def _ext(machine: Machine, argument: int) -> None:
    _import(machine, "copyreg", f"extension_{argument}")


_STEPS: Mapping[str, Step] = {
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
    "POP_MARK": lambda machine, _: machine.drop_mark(),
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


def _table() -> Table:
    entries: list[tuple[Reader | None, Step] | None] = [None] * 256
    opcodes: list[pickletools.OpcodeInfo] = pickletools.opcodes
    for opcode in opcodes:
        entries[ord(opcode.code)] = (reader_of(opcode), _STEPS.get(opcode.name) or _other(opcode))
    return tuple(entries)


TABLE = _table()
