"""Files that a command writes its result to, whatever happens."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Self

import click

from repobuild.errors import from_oserror


class ResultFile:
    """A file that is claimed before the build, so that a bad path costs nothing.

    Leaving writes it, whatever happened. If that fails while another error is on its way, the failure is
    told beside it and does not take its place.

    Args:
        file: The file, ``None`` for none.
        what: What it is, for errors.
        text: Makes its content when it is written.
    """

    def __init__(self, file: Path | None, what: str, text: Callable[[], str]) -> None:
        self._file = file
        self._fresh = file and file.with_name(f".{file.name}.{os.getpid()}")
        self._what = what
        self._text = text

    def __enter__(self) -> Self:
        if self._fresh is not None:
            try:
                self._fresh.touch(exist_ok=False)
            except OSError as problem:
                raise from_oserror(problem, f"opening the {self._what} {self._file}") from problem
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._fresh is None or self._file is None:
            return
        try:
            self._fresh.write_text(self._text(), encoding="utf-8")
            self._fresh.replace(self._file)
        except OSError as problem:
            failure = from_oserror(problem, f"writing the {self._what} {self._file}")
            with contextlib.suppress(OSError):
                self._fresh.unlink()
            if kind is None:
                raise failure from problem
            click.echo(failure.render(), err=True)
