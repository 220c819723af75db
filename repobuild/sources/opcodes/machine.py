"""The machine: its stack, its memo, what is left of its budget, and what it has found."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from repobuild.sources.opcodes import limits
from repobuild.sources.streams import CountingStream


@dataclass(frozen=True, slots=True)
class Global:
    """Something that a pickle imports by its name."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Unknown:
    """Any value that is not looked at."""


UNKNOWN = Unknown()


@dataclass(slots=True)
class Object:
    """The result of calling something: what made it, from what, if it was built, and its state if a tuple."""

    made_by: Global | Unknown
    arguments: Any = UNKNOWN
    state: Any = UNKNOWN
    built: bool = False


@dataclass(slots=True)
class Found:
    """What the scan of a file has met so far, nested pickles included.

    Attributes:
        imports: ``module.name`` of what would be imported.
        calls: What would be called.
        versions: ``{package: versions}`` that the file was made with.
        code: Functions and classes whose code the file carries.
    """

    imports: set[str] = field(default_factory=set)
    calls: set[str] = field(default_factory=set)
    versions: dict[str, set[str]] = field(default_factory=dict)
    code: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Budget:
    """What is left for the rest of a file."""

    opcodes: int
    kept_bytes: int

    def keep(self, size: int) -> None:
        """Take ``size`` bytes.

        Raises:
            Lost: They are not left.
        """
        self.kept_bytes -= size
        if self.kept_bytes < 0:
            kept = limits.MAX_KEPT_BYTES >> 20
            raise Lost(f"it holds more names and objects than the scan keeps ({kept} MiB)")


class Lost(Exception):
    """Raised when the scanner cannot follow the stream, though an unpickler might."""


class Malformed(Exception):
    """Raised when the stream is no pickle from here on."""


class Ended(Exception):
    """Raised when the stream ends before its STOP opcode."""


@dataclass(slots=True)
class Machine:
    """One pickle that is being followed.

    Attributes:
        stream: The bytes, decompressed.
        table: What each opcode reads and does, by its byte.
        found: What was met, shared with the machines of nested pickles.
        budget: What is left, shared likewise.
        depth: How many pickles this one lies inside.
        outer_held: Entries that the machines around it hold.
        frame_end: Where the present frame ends in the stream.
    """

    stream: CountingStream
    table: Table
    found: Found
    budget: Budget
    depth: int = 0
    outer_held: int = 0
    frame_end: int = 0
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def held(self) -> int:
        """Entries of this machine and of those around it."""
        return self.outer_held + len(self.stack) + len(self.marks) + len(self.memo)

    def drop_mark(self) -> None:
        """Drop everything above the topmost mark, and the mark."""
        del self.stack[self.marks.pop() :]

    def pop_mark(self) -> list[Any]:
        """Everything above the topmost mark, which goes too."""
        at = self.marks.pop()
        items = self.stack[at:]
        del self.stack[at:]
        return items

    def follow(self) -> None:
        """Read opcodes up to STOP.

        Raises:
            Lost: The scanner cannot follow the stream, or a limit is met.
            Malformed: No unpickler could read on either.
            Ended: The stream ends inside an array.
            StreamEnded: It ends elsewhere.
        """
        if self.depth > limits.MAX_DEPTH:
            raise Lost("pickles are nested too deeply")
        stream, budget, table = self.stream, self.budget, self.table
        try:
            while True:
                budget.opcodes -= 1
                if not budget.opcodes % limits.CHECK_EVERY:
                    self._check()
                code = stream.byte()
                if code == STOP:
                    return
                entry = table[code]
                if entry is None:
                    raise Malformed(
                        f"not a pickle: at byte {stream.tell() - 1}, {bytes([code])!r} is no opcode"
                    )
                read, step = entry
                step(self, None if read is None else read(self))
        except (ValueError, IndexError, KeyError, TypeError, AttributeError) as problem:
            raise Malformed(f"not a well-formed pickle: {type(problem).__name__} {problem}") from None

    def follow_inner(self) -> None:
        """Follow the whole pickle that begins at the next byte of this one's stream."""
        Machine(self.stream, self.table, self.found, self.budget, self.depth + 1, self.held()).follow()

    def _check(self) -> None:
        if self.budget.opcodes <= 0:
            raise Lost(f"it has more than {limits.MAX_OPCODES} opcodes")
        if self.held() > limits.MAX_HELD:
            raise Lost(f"it has more than {limits.MAX_HELD} objects under way at one time")


Reader: TypeAlias = Callable[[Machine], Any]
Step: TypeAlias = Callable[[Machine, Any], None]
Table: TypeAlias = Sequence[tuple[Reader | None, Step] | None]
STOP = pickle.STOP[0]
