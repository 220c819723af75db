"""The versions that a model was made with, held against those that are installed."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version

from repobuild.errors import Evidence, RepobuildError

CLAUSE = re.compile(r"(<|>=)(\d+(?:\.\d+)*)")
BLAMED = frozenset({"class-missing", "module-missing", "model-unloadable", "source-failed", "worker-crashed"})
"""Codes of errors that another version of a package is usually behind."""

SUSPECTED = frozenset({"samples-refused", "export-failed", "no-converter", "not-fitted"})
"""Codes of errors that it may be behind, and that have likelier causes."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A package that the model was made with in another version than the installed one.

    Attributes:
        package: Its name for pip, or ``python``.
        made_with: What the file tells: ``1.2.2``, or ``<2`` where only its form tells.
        installed: The version here, ``None`` where there is none.
    """

    package: str
    made_with: str
    installed: str | None

    def __str__(self) -> str:
        here = f"{self.installed} is installed here" if self.installed else "it is not installed here"
        return f"the model was saved with {self.package} {self.made_with}; {here}"


def installed_version(package: str) -> str | None:
    """The installed version of a package, or of Python itself."""
    if package == "python":
        return platform.python_version()
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def mismatches(versions: Mapping[str, tuple[str, ...]]) -> tuple[Mismatch, ...]:
    """The versions of a file that do not fit what is installed, by package."""
    return tuple(
        Mismatch(package, made_with, here)
        for package, found in versions.items()
        for here in (installed_version(package),)
        for made_with in found
        if here is None or not _fits(made_with, here)
    )


def pip_line(found: tuple[Mismatch, ...]) -> str | None:
    """The command that installs what the model was made with; ``None`` where only Python differs."""
    wanted: dict[str, str] = {}
    for item in found:
        if item.package != "python":
            sign = "" if item.made_with[0] in "<>" else "=="
            wanted[item.package] = f"{item.package}{sign}{item.made_with}"
    return f"pip install {' '.join(map(shlex.quote, wanted.values()))}" if wanted else None


def blame_versions(problem: RepobuildError, found: tuple[Mismatch, ...]) -> RepobuildError:
    """The error with the versions that may be behind it, and how to get them."""
    if not found or problem.code not in BLAMED | SUSPECTED:
        return problem
    seen = (*problem.evidence, *(Evidence(str(item)) for item in found))
    if problem.code in SUSPECTED:
        return replace(problem, evidence=seen)
    line = pip_line(found)
    how = f"install what the model was made with: {line}" if line else "use the Python it was made with"
    hint = f"{how}; or save it again with the versions that are installed here"
    return replace(problem, evidence=seen, hint=hint)


def _fits(made_with: str, here: str) -> bool:
    clauses = CLAUSE.findall(made_with)
    if not clauses:
        return made_with == here
    return all(
        _numbers(here) < _numbers(bound) if sign == "<" else _numbers(here) >= _numbers(bound)
        for sign, bound in clauses
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text)[:3])
