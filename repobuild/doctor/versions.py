"""Versions and ranges of packages, as far as the ranges of this project's metadata go."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_NAME = re.compile(r"\s*(?P<name>[A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*(?P<range>[^;]*)(?:;(?P<marker>.*))?")
_EXTRA = re.compile(r"""extra\s*==\s*['"](?P<extra>[^'"]+)['"]""")
_CLAUSE = re.compile(r"\s*(?P<sign>>=|<=|==|!=|<|>)\s*(?P<version>[0-9A-Za-z.*+!-]+)\s*")
_COMPARE: Mapping[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package that is wanted: its name, range of versions, and the extra that wants it, if one does."""

    name: str
    range: str
    extra: str | None

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Read a ``Requires-Dist`` line.

        Raises:
            ValueError: It is none.
        """
        found = _NAME.fullmatch(text)
        if found is None:
            raise ValueError(f"'{text}' is not a requirement")
        extra = _EXTRA.search(found["marker"] or "")
        return cls(
            re.sub("[-_.]+", "-", found["name"].lower()), found["range"].strip(), extra and extra["extra"]
        )

    def met_by(self, version: str) -> bool:
        """Whether a version lies in the range."""
        return in_range(version, self.range)


def release_of(version: str) -> tuple[int, ...]:
    """The numbers of a version without zeros at its end: ``(1, 20)`` for ``1.20.0rc1``."""
    numbers = [int(n) for n in re.findall(r"\d+", re.split(r"[^0-9.]", version.strip().lstrip("v"))[0])]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def in_range(version: str, text: str) -> bool:
    """Whether a version lies in a range such as ``>=5.29,<7``; an empty range holds all.

    Raises:
        ValueError: The range has a clause that is not understood.
    """
    have = release_of(version)
    for clause in filter(None, (c.strip() for c in text.split(","))):
        found = _CLAUSE.fullmatch(clause)
        if found is None:
            raise ValueError(f"'{clause}' is not understood")
        if not _COMPARE[found["sign"]](have, release_of(found["version"])):
            return False
    return True
