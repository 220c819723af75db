"""Steps over the raw array bytes that joblib writes between opcodes.

After the opcode that completes a ``NumpyArrayWrapper`` come an optional length byte with padding and the
array's bytes, or, for object arrays, a whole further pickle (joblib
``numpy_pickle.NumpyArrayWrapper.read_array``).
"""

from __future__ import annotations

import re
from typing import Any

from repobuild.sources.opcodes.machine import Ended, Global, Lost, Machine, Object
from repobuild.sources.streams import StreamEnded

WRAPPER = "joblib.numpy_pickle.NumpyArrayWrapper"
WRAPPER_KEYS = frozenset({"dtype", "shape", "numpy_array_alignment_bytes"})
READING_CLASSES = frozenset({"NumpyArrayWrapper", "NDArrayWrapper", "ZNDArrayWrapper"})
"""Classes whose objects make joblib's unpickler read on in its own way when it builds them."""
DTYPE = "numpy.dtype"
TYPE_CODE = re.compile(r"[<>=|]?(?P<kind>[biufcmMSUVaO?])(?P<size>\d{0,18})(\[[^\]]{0,20}\])?")
HAS_OBJECT = 0x01
"""NPY_ITEM_REFCOUNT of a dtype's flags, which is what ``dtype.hasobject`` looks at."""
SIZED_BY_STATE = "SUVa"
"""Kinds whose element size numpy.dtype.__setstate__ takes from the state (arraydescr_setstate)."""


def refuse_loose(value: Any) -> None:
    """Be lost where a class of joblib's wrappers, or one that is not built yet, goes where none should.

    joblib writes the class, makes an object of it and builds that at once. Passed to a function or kept in a
    container, it would become a wrapper that the scanner does not know, and the array's bytes opcodes.

    Raises:
        Lost: It is one.
    """
    if isinstance(value, tuple):
        for item in value:
            refuse_loose(item)
    maker = value.made_by if isinstance(value, Object) else value
    if isinstance(maker, Global) and reads_on(maker):
        raise Lost("a class of joblib's array wrappers is used otherwise than joblib does")


def reads_on(imported: Global) -> bool:
    """Whether a name is that of a class of joblib's wrappers, wherever it is imported from."""
    return imported.name.rpartition(".")[2] in READING_CLASSES


def skip_array(machine: Machine, state: Any) -> None:
    """Drop the bytes of the array whose wrapper has just got its state.

    Raises:
        Lost: The state does not tell how many bytes they are.
        Ended: The stream holds fewer.
    """
    if machine.stream.tell() < machine.frame_end:
        raise Lost("an array wrapper in the middle of a frame")
    if not isinstance(state, dict):
        raise Lost("an array wrapper without the state that joblib gives it")
    dtype = state.get("dtype")
    shape = state.get("shape")
    if not isinstance(dtype, Object) or str(dtype.made_by) != DTYPE or not isinstance(shape, tuple):
        raise Lost("an array wrapper whose type or shape cannot be read")
    size = _item_size(dtype)
    if size is None:
        machine.follow_inner()
        return
    for length in shape:
        if not isinstance(length, int) or length < 0:
            raise Lost("an array wrapper whose shape is not made of numbers")
        size *= length
    try:
        if state.get("numpy_array_alignment_bytes") is not None:
            machine.stream.skip(machine.stream.byte())
        machine.stream.skip(size)
    except StreamEnded:
        raise Ended(f"the file ends inside an array of {size} bytes") from None


def _item_size(dtype: Object) -> int | None:
    """Bytes of one element, ``None`` for objects, which joblib writes as a pickle.

    ``numpy.dtype(code)`` gives the type and ``__setstate__`` overrides its size and flags with ``(version,
    byte order, subarray, names, fields, size, alignment, flags[, metadata])``.

    Raises:
        Lost: The type is not understood in full.
    """
    code = dtype.arguments[0] if isinstance(dtype.arguments, tuple) and dtype.arguments else None
    match = TYPE_CODE.fullmatch(code) if isinstance(code, str) else None
    if match is None:
        raise Lost("an array wrapper whose type is not understood")
    kind, digits = match["kind"], match["size"]
    if not dtype.built:
        if kind == "O":
            return None
        return _size_of(kind, digits)
    state = dtype.state
    if not isinstance(state, tuple) or len(state) not in (8, 9) or state[0] not in (3, 4):
        raise Lost("an array wrapper whose type has a state that is not understood")
    flags, stated = state[7], state[5]
    if not isinstance(flags, int) or state[2] is not None:
        raise Lost("an array wrapper whose type has a state that is not understood")
    if flags & HAS_OBJECT:
        return None
    if kind not in SIZED_BY_STATE:
        return _size_of(kind, digits)
    if not isinstance(stated, int) or stated < 0:
        raise Lost("an array wrapper whose type has no size")
    return stated


def _size_of(kind: str, digits: str) -> int:
    if not digits:
        raise Lost(f"an array of type '{kind}', whose size is not known")
    return int(digits) * (4 if kind == "U" else 1)
