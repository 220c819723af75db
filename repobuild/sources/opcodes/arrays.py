"""Steps over the raw array bytes that joblib writes between opcodes.

After the opcode that completes a ``NumpyArrayWrapper`` come an optional length byte with padding and the
array's bytes, or, for object arrays, a whole further pickle (joblib
``numpy_pickle.NumpyArrayWrapper.read_array``).
"""

from __future__ import annotations

from typing import Any

from repobuild.sources.opcodes.machine import Ended, Lost, Machine, Object
from repobuild.sources.streams import StreamEnded

WRAPPER = "joblib.numpy_pickle.NumpyArrayWrapper"
WRAPPER_KEYS = frozenset({"dtype", "shape", "numpy_array_alignment_bytes"})
LONGEST_DIGITS = 18


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
    if (
        not isinstance(dtype, Object)
        or not isinstance(dtype.arguments, tuple)
        or not isinstance(shape, tuple)
    ):
        raise Lost("an array wrapper whose type or shape cannot be read")
    code = dtype.arguments[0] if dtype.arguments else None
    if not isinstance(code, str):
        raise Lost("an array wrapper whose type is not named")
    if code.startswith("O"):
        machine.follow_inner()
        return
    size = _item_size(code, dtype.state)
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


def _item_size(code: str, state: Any) -> int:
    """Bytes of one element of ``numpy.dtype(code)``; structured types carry it in their state."""
    plain = code.lstrip("<>=|")
    if plain[:1] == "V" and isinstance(state, tuple) and len(state) > 5 and isinstance(state[5], int):
        return state[5]
    number = plain[1:].partition("[")[0]
    if not number.isdecimal() or len(number) > LONGEST_DIGITS:
        raise Lost(f"an array of type '{code}', whose size is not known")
    return int(number) * (4 if plain[0] == "U" else 1)
