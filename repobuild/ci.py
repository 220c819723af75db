"""What CI systems show of builds: JUnit XML, and Markdown for the summary of a GitHub Actions job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from repobuild.errors import printable
from repobuild.many import Built
from repobuild.report import Check, Fail, Skip

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


def as_junit(built: Sequence[Built]) -> str:
    """Builds as JUnit XML: one suite a model, one case a check, and one case for the build itself.

    The form is the one that CI systems read: ``testsuites``, ``testsuite`` with ``tests``, ``failures``,
    ``errors`` and ``skipped``, and ``testcase`` with ``failure``, ``error`` or ``skipped`` inside.
    """
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<testsuites name="repobuild">']
    for item in built:
        lines.extend(_suite(item))
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def as_summary(built: Sequence[Built]) -> str:
    """Builds as Markdown: a table of models, and what failed below it."""
    lines = ["| model | result | checks | detail |", "| --- | --- | --- | --- |"]
    for item in built:
        checks = _checks(item)
        held = sum(c.outcome == "pass" for c in checks)
        lines.append(f"| {_cell(_name(item))} | {item.result} | {held} of {len(checks)} | {_detail(item)} |")
    for item in built:
        if item.error is not None:
            fence = "`" * 4
            lines += ["", f"### {_cell(_name(item))}", "", f"{fence}text", item.error.render(), fence]
    return "\n".join(lines) + "\n"


def append_summary(built: Sequence[Built]) -> str | None:
    """Append to the job's summary where there is one.

    Returns:
        Why it could not be written, ``None`` when it was, or when there is no such file.
    """
    file = os.environ.get(SUMMARY_VARIABLE)
    if not file:
        return None
    try:
        with Path(file).open("a", encoding="utf-8") as stream:
            stream.write(as_summary(built))
    except OSError as problem:
        return f"the job summary could not be written: {problem}"
    return None


def _suite(item: Built) -> Iterator[str]:
    checks = _checks(item)
    counts = {
        "tests": len(checks) + 1,
        "failures": sum(isinstance(c.verdict, Fail) for c in checks),
        "errors": int(item.error is not None),
        "skipped": sum(isinstance(c.verdict, Skip) for c in checks) + (item.result == "skipped"),
    }
    told = " ".join(f'{k}="{v}"' for k, v in counts.items())
    yield f" <testsuite name={_quoted(_name(item))} {told}>"
    yield from (_case(item, c.name, _inside(c)) for c in checks)
    inside = "<skipped/>" if item.result == "skipped" else ""
    if item.error is not None:
        code, message = _quoted(item.error.code), _quoted(item.error.message)
        inside = f"<error type={code} message={message}>{escape(item.error.render())}</error>"
    yield _case(item, "build", inside)
    yield " </testsuite>"


def _case(item: Built, name: str, inside: str) -> str:
    return f"  <testcase classname={_quoted(_name(item))} name={_quoted(name)}>{inside}</testcase>"


def _inside(check: Check) -> str:
    if isinstance(check.verdict, Fail):
        return f"<failure message={_quoted(check.detail)}/>"
    return f"<skipped message={_quoted(check.detail)}/>" if isinstance(check.verdict, Skip) else ""


def _checks(item: Built) -> tuple[Check, ...]:
    return (*item.report.checks, *item.report.verification) if item.report else ()


def _name(item: Built) -> str:
    return item.model or str(item.file)


def _detail(item: Built) -> str:
    if item.error is not None:
        return f"`{item.error.code}`: {_cell(item.error.message)}"
    return f"version {item.report.version}" if item.report else ""


def _quoted(text: str) -> str:
    """An attribute; characters that XML cannot hold are written as escapes."""
    return quoteattr(printable(text).replace("\n", " "))


def _cell(text: str) -> str:
    return printable(text).replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")
