"""Every error a user can meet, with a stable code, the evidence and what to do next.

The tree (each class fixes the exit status of the command line)::

    RepobuildError
    ├── UsageProblem          2   the command line itself is wrong
    ├── InputInvalid          3   a recipe, model file, sample file or repository is not usable
    ├── CheckFailed           4   the artifact does not answer as the model does
    ├── ConversionFailed      5   the model cannot be exported or compiled
    ├── SourceUntrusted       6   loading would run code that nobody vouched for
    ├── EnvironmentLacking    7   a package, permission, port, disk or process is missing or failed
    └── VerificationFailed    8   the server did not answer as the model does; nothing was changed

This module imports nothing of repobuild, so that every other module may raise from it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

EXIT_OK = 0
EXIT_BUG = 70
EXIT_INTERRUPTED = 130

_CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def printable(text: str) -> str:
    """The text with everything escaped that could move a terminal's cursor or reorder what it shows.

    Names out of files that nobody vouched for appear in errors; line breaks and tabs are left alone.
    """
    kept = "\n\t"
    hidden = ("Cc", "Cf", "Zl", "Zp", "Cs", "Co")
    return "".join(
        c if c in kept or unicodedata.category(c) not in hidden else c.encode("unicode_escape").decode()
        for c in text
    )


@dataclass(frozen=True, slots=True)
class Evidence:
    """One line of proof under an error: what was seen, and where.

    Attributes:
        text: What was seen.
        file: The file it was seen in, as the user named it.
        line: 1-based line in that file.
        key: Key path in a recipe (``outputs[0].from``) or config.
    """

    text: str
    file: str | None = None
    line: int | None = None
    key: str | None = None

    def render(self) -> str:
        """``file:line: key: text`` with what is known of it."""
        place = "" if self.file is None else f"{self.file}:{self.line}: " if self.line else f"{self.file}: "
        key = f"{self.key}: " if self.key else ""
        return printable(f"{place}{key}{self.text}")


@dataclass(eq=False)
class RepobuildError(Exception):
    """Base of all errors that repobuild raises on purpose.

    Attributes:
        code: Stable kebab-case code; ``repobuild explain CODE`` tells more.
        message: One sentence on what happened.
        evidence: What was seen, most telling first.
        hint: What to do next.
    """

    code: str
    message: str
    evidence: tuple[Evidence, ...] = field(default=())
    hint: str | None = None
    exit_code: ClassVar[int] = EXIT_BUG

    def __post_init__(self) -> None:
        if not _CODE.fullmatch(self.code):
            raise ValueError(f"error code {self.code!r} is not kebab-case")
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        """The plain text form: ``error[code]: message``, evidence lines, ``hint:``."""
        lines = [f"error[{self.code}]: {printable(self.message)}"]
        for item in self.evidence:
            first, *rest = item.render().splitlines() or [""]
            lines.append(f"  - {first}")
            lines.extend(f"    {line}" for line in rest)
        if self.hint:
            lines.append(f"hint: {printable(self.hint)}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form that :func:`error_from_dict` reads back."""
        return {
            "kind": type(self).__name__,
            "code": self.code,
            "message": self.message,
            "evidence": [
                {"text": e.text, "file": e.file, "line": e.line, "key": e.key} for e in self.evidence
            ],
            "hint": self.hint,
        }


class UsageProblem(RepobuildError):
    """Raised when the command line asks for something that does not make sense."""

    exit_code = 2


class InputInvalid(RepobuildError):
    """Raised when a recipe, model file, sample file or existing repository cannot be used."""

    exit_code = 3


class CheckFailed(RepobuildError):
    """Raised when an artifact's answers leave those of the model it came from."""

    exit_code = 4


class ConversionFailed(RepobuildError):
    """Raised when a model cannot be exported to ONNX or compiled."""

    exit_code = 5


class SourceUntrusted(RepobuildError):
    """Raised when loading a file would run code that nobody vouched for."""

    exit_code = 6


class EnvironmentLacking(RepobuildError):
    """Raised when the machine lacks or refuses something: package, permission, disk, port, process."""

    exit_code = 7


class VerificationFailed(RepobuildError):
    """Raised when the bundled server does not answer as the model does; the repository is untouched."""

    exit_code = 8


KINDS: Mapping[str, type[RepobuildError]] = {
    kind.__name__: kind
    for kind in (
        UsageProblem,
        InputInvalid,
        CheckFailed,
        ConversionFailed,
        SourceUntrusted,
        EnvironmentLacking,
        VerificationFailed,
    )
}


def error_from_dict(data: Mapping[str, Any]) -> RepobuildError:
    """Rebuild an error that crossed a process boundary as :meth:`RepobuildError.to_dict`.

    Raises:
        KeyError: ``data`` is not what ``to_dict`` writes.
    """
    kind = KINDS[data["kind"]]
    return kind(data["code"], data["message"], tuple(Evidence(**e) for e in data["evidence"]), data["hint"])


def evidence(lines: Iterable[str]) -> tuple[Evidence, ...]:
    """Plain lines as evidence without a place."""
    return tuple(Evidence(line) for line in lines)


def from_oserror(problem: OSError, doing: str) -> EnvironmentLacking:
    """Turn an operating system error into one that says what was being done.

    Args:
        problem: The error as raised.
        doing: What was being done, to complete "while ...".
    """
    import errno

    problem = _first(problem)
    named = str(problem.filename) if problem.filename else None
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        named = str(problem.filename2) if problem.filename2 else named  # of a copy, what was to be written
        return EnvironmentLacking(
            "disk-full",
            f"no space left while {doing}",
            (Evidence(problem.strerror or str(problem), file=named),),
            "free some space, or build into a folder on another disk; nothing half written was left",
        )
    if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return EnvironmentLacking(
            "permission-denied",
            f"not allowed while {doing}",
            (Evidence(problem.strerror or str(problem), file=named),),
            "check the owner and mode of the folder, and that the file system is not mounted read-only",
        )
    return EnvironmentLacking(
        "os-error",
        f"the operating system refused while {doing}",
        (Evidence(problem.strerror or str(problem), file=named),),
        "see the evidence; the command can be run again once this is mended",
    )


def _first(problem: OSError) -> OSError:
    """The first of the errors that ``shutil.copytree`` collects; it keeps their texts only."""
    import os
    import shutil

    collected = problem.args[0] if isinstance(problem, shutil.Error) and problem.args else ()
    if not isinstance(collected, list) or not collected:
        return problem
    _, target, text = collected[0]
    number = re.match(r"\[Errno (\d+)\] ", str(text))
    return OSError(int(number[1]), os.strerror(int(number[1])), str(target)) if number else problem


def first_words(problem: RepobuildError) -> str:
    """An error in one line."""
    return f"{problem.message}: {problem.evidence[0].text}" if problem.evidence else problem.message
