"""Standard input, output and error as a command can rely on them: always open, and failing in known ways."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from repobuild.errors import EnvironmentLacking, evidence

STANDARD = (0, 1, 2)


class OutputClosed(Exception):
    """Raised when nobody reads standard output any more, as after ``| head``."""


class Told:
    """Standard output whose failures are told apart from those of the work.

    Args:
        stream: The stream itself.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, see :class:`Told` for what it raises.

        Raises:
            OutputClosed: Nobody reads.
            EnvironmentLacking: ``output-failed``, such as on a full disk.
            TypeError: It is no text.
        """
        if not isinstance(text, str):
            raise TypeError("standard output takes text")
        if not text:
            return 0  # click probes streams so, and ignores what that raises
        with self._telling():
            return self._stream.write(text)

    def flush(self) -> None:
        """Flush, raising as :meth:`write` does."""
        with self._telling():
            self._stream.flush()

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self._give_up()
            raise OutputClosed from None
        except OSError as problem:
            self._give_up()
            raise _failed(problem) from problem

    def _give_up(self) -> None:
        """Let what is left in the buffer go nowhere, so that the interpreter's last flush does not fail."""
        with contextlib.suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class BestEffort:
    """Standard error that drops what cannot be written: there is no place left to tell of it.

    What a command does and its exit status do not hang on its messages.

    Args:
        stream: The stream itself.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write what can be written."""
        with contextlib.suppress(OSError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def settle_streams() -> None:
    """Open what the caller closed (``>&-``) on nothing, and wrap the streams.

    A closed descriptor would be given to the next file that is opened, which then gets the messages.
    """
    for descriptor in STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "w", closefd=False))
    sys.stdout = Told(sys.stdout)
    sys.stderr = BestEffort(sys.stderr)


def is_stream(path: Path) -> bool:
    """Whether a device or a pipe is there, or the file behind standard output or error (``/dev/stdout``)."""
    try:
        found = path.stat()
    except OSError:
        return False
    if not stat.S_ISREG(found.st_mode):
        return not stat.S_ISDIR(found.st_mode)
    return any(os.path.samestat(found, os.fstat(descriptor)) for descriptor in (1, 2))


def write_stream(path: Path, text: str) -> None:
    """Write to what :func:`is_stream` found, after what is there.

    Raises:
        OSError: It cannot be written.
    """
    with path.open("a", encoding="utf-8") as stream:
        stream.write(text)


def _failed(problem: OSError) -> EnvironmentLacking:
    return EnvironmentLacking(
        "output-failed",
        f"standard output cannot be written: {problem.strerror or problem}",
        evidence(["the command had come to its result, which it could not print"]),
        "only the printing failed; a build that had ended is in its repository",
    )
