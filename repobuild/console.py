"""What the command line prints: steps on standard error, the result on standard output."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import click

from repobuild.errors import printable
from repobuild.interrupts import deferred_interrupts
from repobuild.report import Check, Report
from repobuild.watch import Watch

HEARTBEAT_SECONDS = 30.0
Progress = Literal["auto", "plain", "tty", "quiet"]
PROGRESS: tuple[Progress, ...] = ("auto", "plain", "tty", "quiet")


class Display(Watch, Protocol):
    """A watch that shows something while it is entered."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class PlainLines:
    """One line a step, as CI logs want it, and a line now and then while a long step is at work.

    Args:
        quiet: Show notes only.
        heartbeat: Seconds between the lines of a long step.
    """

    def __init__(self, *, quiet: bool = False, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        self._quiet = quiet
        self._every = heartbeat
        self._done = threading.Event()
        self._beat: threading.Thread | None = None

    def began(self, step: str) -> None:
        """From now on there are heartbeats."""
        self._stop()
        if self._quiet:
            return
        self._done = threading.Event()
        with deferred_interrupts():
            self._beat = threading.Thread(target=self._beats, args=(step, self._done), daemon=True)
            self._beat.start()

    def ended(self, step: str, detail: str, seconds: float) -> None:
        """One line: step, what came out, how long it took."""
        self._stop()
        if not self._quiet:
            click.echo(step_line(step, detail, seconds), err=True)

    def note(self, text: str) -> None:
        """A note is shown even when quiet."""
        click.echo(f"note: {printable(text)}", err=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _beats(self, step: str, done: threading.Event) -> None:
        start = time.monotonic()
        while not done.wait(self._every):
            click.echo(f"  {step:<8} still at work ({time.monotonic() - start:.0f} s)", err=True)

    def _stop(self) -> None:
        self._done.set()
        if self._beat is not None:
            self._beat.join()
            self._beat = None


class LiveLines:
    """For terminals: a spinner with the time that the present step has taken; lines of ended steps stay.

    Colours are left to rich, which honours ``NO_COLOR`` and ``FORCE_COLOR``.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import Progress as Bars
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True, force_terminal=True, highlight=False, soft_wrap=True)
        self._bars = Bars(
            TextColumn(" "),
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            redirect_stdout=False,
        )
        self._task: Any = None

    def began(self, step: str) -> None:
        """The spinner shows the step."""
        self._forget()
        self._task = self._bars.add_task(step, total=None)

    def ended(self, step: str, detail: str, seconds: float) -> None:
        """The step's line takes the place of its spinner."""
        self._forget()
        self._line(step_line(step, detail, seconds))

    def note(self, text: str) -> None:
        """A line above the spinner."""
        self._line(f"note: {printable(text)}", style="yellow")

    def __enter__(self) -> Self:
        try:
            with deferred_interrupts():
                self._bars.start()
        except BaseException:
            self._bars.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._forget()
        self._bars.stop()

    def _line(self, text: str, style: str | None = None) -> None:
        self._console.print(text, markup=False, style=style)

    def _forget(self) -> None:
        if self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None


class Collecting:
    """Passes everything on, and keeps the notes.

    Args:
        inner: Where everything goes.
        notes: List that the notes are appended to.
    """

    def __init__(self, inner: Watch, notes: list[str]) -> None:
        self._inner = inner
        self._notes = notes

    def began(self, step: str) -> None:
        """Passed on."""
        self._inner.began(step)

    def ended(self, step: str, detail: str, seconds: float) -> None:
        """Passed on."""
        self._inner.ended(step, detail, seconds)

    def note(self, text: str) -> None:
        """Kept and passed on."""
        self._notes.append(text)
        self._inner.note(text)


def display(progress: Progress = "auto", *, quiet: bool = False) -> Display:
    """How steps are to be shown.

    ``auto`` is live on a terminal, and plain where standard error is none, where ``TERM`` is ``dumb`` and
    in CI (``CI`` is set).
    """
    if quiet or progress == "quiet":
        return PlainLines(quiet=True)
    if progress == "plain" or (progress == "auto" and not _live()):
        return PlainLines()
    return LiveLines()


def step_line(step: str, detail: str, seconds: float) -> str:
    """``step  what came out (1.2 s)``."""
    return f"  {step:<8} {printable(detail)} ({seconds:.1f} s)"


def table(rows: list[tuple[str, ...]]) -> str:
    """Rows of text in columns of equal width; the last column is as long as it is."""
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(len(rows[0]) - 1)] if rows else []
    lines = ("  ".join([*(f"{c:<{w}}" for c, w in zip(row, widths, strict=False)), row[-1]]) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def closing_table(report: Report, repository: str) -> str:
    """The result of a conversion: every check, then one greppable last line."""
    checks = table([(c.name, c.outcome, _detail(c)) for c in (*report.checks, *report.verification)])
    where = f"{repository}/{report.model}/{report.version}"
    state = "unchanged, equal content was there"
    if report.changed:
        state = "new" if report.new_version else "equal content was there, its configuration changed"
    return printable(f"{checks}\nPASSED {report.model} version {report.version} ({state}): {where}")


def _detail(check: Check) -> str:
    if check.worst is None:
        return check.detail
    return f"{check.detail}; worst: absolute {check.worst.absolute:.3g} at row {check.worst.row}"


def _live() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")
