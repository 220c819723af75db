"""Where the two servers may differ, and why.

An entry names cases by pattern, and the parts of the answer that differ. A case that no longer differs as written
fails its test, so an entry cannot outlive its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Difference:
    """Cases, the parts of their answers (of ``Aspects``) that differ, and the reason."""

    cases: tuple[str, ...]
    parts: frozenset[str]
    reason: str


DIFFERENCES: tuple[Difference, ...] = ()

# Requests that end the process of the real server; ours must answer them with an error, and live.
CRASHING = {
    "json-shape-huge": "contract 0.2 (2): Triton allocates what the shape says",
    "classes-zero-size": "contract 0.2 (2): classification of an output without elements",
}


def expected(case: str) -> set[str]:
    """The parts of a case's answer that are to differ."""
    return {
        part
        for entry in DIFFERENCES
        if any(fnmatchcase(case, pattern) for pattern in entry.cases)
        for part in entry.parts
    }
