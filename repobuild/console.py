"""What the command line prints: steps on standard error, the result on standard output."""

from __future__ import annotations

import sys

import click

from repobuild.errors import printable
from repobuild.report import Check, Report


class PlainLines:
    """A :class:`repobuild.watch.Watch` with one line a step, as CI logs want it."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def began(self, step: str) -> None:
        """On a terminal, the step is named while it runs."""
        if not self._quiet and sys.stderr.isatty():
            click.echo(f"  {step} ...\r", err=True, nl=False)

    def ended(self, step: str, detail: str, seconds: float) -> None:
        """One line: step, what came out, how long it took."""
        if not self._quiet:
            click.echo(f"  {step:<8} {printable(detail)} ({seconds:.1f} s)", err=True)

    def note(self, text: str) -> None:
        """A note is shown even when quiet."""
        click.echo(f"note: {printable(text)}", err=True)


def closing_table(report: Report, repository: str) -> str:
    """The result of a conversion: every check, then one greppable last line."""
    rows = [(c.name, c.outcome, _detail(c)) for c in (*report.checks, *report.verification)]
    widths = [max((len(r[i]) for r in rows), default=0) for i in (0, 1)]
    lines = [f"{name:<{widths[0]}}  {outcome:<{widths[1]}}  {detail}" for name, outcome, detail in rows]
    where = f"{repository}/{report.model}/{report.version}"
    state = "new" if report.changed else "unchanged, equal content was there"
    return printable(
        "\n".join([*lines, f"PASSED {report.model} version {report.version} ({state}): {where}"])
    )


def _detail(check: Check) -> str:
    if check.worst is None:
        return check.detail
    return f"{check.detail}; worst: absolute {check.worst.absolute:.3g} at row {check.worst.row}"
