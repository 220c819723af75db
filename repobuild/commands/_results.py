"""Files that a command writes its result to, whatever happens."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

import click

from repobuild.errors import Evidence, InputInvalid, from_oserror
from repobuild.streams import is_stream, write_stream


class ResultFile:
    """A file that is claimed before the build, so that a bad path costs nothing.

    Leaving writes it, whatever happened: a regular file in one step, through symbolic links to what they
    name; a device or a pipe as it comes. If that fails while another error is on its way, the failure is told
    beside it and does not take its place.

    Args:
        file: The file, ``None`` for none.
        what: What it is, for errors.
        text: Makes its content when it is written.
        inputs: Files that the command reads, see :meth:`spare`.
    """

    def __init__(
        self, file: Path | None, what: str, text: Callable[[], str], inputs: Iterable[Path | None] = ()
    ) -> None:
        self._stream = file is not None and is_stream(file)
        self._file = file if file is None or self._stream else Path(os.path.realpath(file))
        self._given = file
        self._fresh: Path | None = None
        self._what = what
        self._text = text
        self._inputs = tuple(inputs)

    def __enter__(self) -> Self:
        self.spare(self._inputs)
        if self._file is not None and not self._stream:
            fresh = self._file.with_name(f".{self._file.name}.{os.getpid()}")
            try:
                fresh.touch(exist_ok=False)
            except OSError as problem:
                raise from_oserror(problem, f"opening the {self._what} {self._given}") from problem
            self._fresh = fresh
        return self

    def spare(self, inputs: Iterable[Path | None]) -> None:
        """Make sure that the file is none of those that the command reads.

        Args:
            inputs: The files; ``None`` and what does not exist is left out.

        Raises:
            InputInvalid: ``output-is-input``; nothing is written then.
        """
        read = next((path for path in inputs if path is not None and self._is(path)), None)
        if read is None:
            return
        self._file = None
        if self._fresh is not None:
            self._fresh.unlink(missing_ok=True)
        raise output_is_input(f"the {self._what} {self._given} is a file that the command reads", read)

    def _is(self, path: Path) -> bool:
        try:
            return self._file is not None and self._file.samefile(path)
        except OSError:
            return False  # one of them does not exist

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is None:
            return
        try:
            if self._fresh is None:
                write_stream(self._file, self._text())
            else:
                self._fresh.write_text(self._text(), encoding="utf-8")
                self._fresh.replace(self._file)
        except OSError as problem:
            failure = from_oserror(problem, f"writing the {self._what} {self._given}")
            if self._fresh is not None:
                with contextlib.suppress(OSError):
                    self._fresh.unlink()
            if kind is None:
                raise failure from problem
            click.echo(failure.render(), err=True)


def output_is_input(message: str, path: Path) -> InputInvalid:
    """The error for a file to write that is one of those that are read."""
    evidence = (Evidence("not overwritten", file=str(path)),)
    return InputInvalid("output-is-input", message, evidence, "name another file to write")
