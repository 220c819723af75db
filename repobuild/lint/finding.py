"""What lint finds: findings, the table's rules they belong to, and the place where they are gathered."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

MOST_FINDINGS = 5_000
"""Findings that are kept; a hostile repository could make millions."""


class Severity(enum.Enum):
    """How bad a finding is."""

    ERROR = "error"
    """Triton refuses to load or to answer, or answers wrongly."""
    WARNING = "warning"
    """A trap: it loads, and does something else than it seems to."""
    NOTE = "note"
    """Worth knowing."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that lint looks for.

    Attributes:
        id: Stable kebab-case name.
        severity: How bad it is.
        what: What it means, one or two sentences.
        source: Where the rule comes from: a file of Triton's source, a document, or a measurement.
        hint: What to do.
    """

    id: str
    severity: Severity
    what: str
    source: str
    hint: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a repository breaks.

    Attributes:
        rule: Id of the rule.
        severity: The rule's severity.
        message: What is wrong here, one sentence.
        file: Path below the repository, with ``/``; ``"."`` is the repository itself.
        line: 1-based line, ``None`` where the file has no lines.
        column: 1-based column, if known.
        evidence: What was seen.
        hint: What to do.
    """

    rule: str
    severity: Severity
    message: str
    file: str
    line: int | None = None
    column: int | None = None
    evidence: tuple[str, ...] = ()
    hint: str | None = None

    def order(self) -> tuple[object, ...]:
        """Findings are shown by file, line, column, rule."""
        return self.file, self.line or 0, self.column or 0, self.rule, self.message


@dataclass(slots=True)
class Findings:
    """Gathers findings; the same one is kept once."""

    ignored: frozenset[str] = frozenset()
    _seen: dict[Finding, None] = field(default_factory=dict)
    left_out: int = 0

    def add(
        self,
        rule: str,
        message: str,
        file: str,
        line: int | None = None,
        column: int | None = None,
        evidence: Iterable[str] = (),
        hint: str | None = None,
    ) -> None:
        """Keep a finding of the rule, unless the rule is ignored.

        Args:
            rule: Id of a rule of :data:`repobuild.lint.rules.RULES`.
            message: What is wrong here.
            file: Path below the repository.
            line: 1-based line.
            column: 1-based column.
            evidence: What was seen.
            hint: Instead of the rule's own.
        """
        from repobuild.lint.rules import RULES

        entry = RULES[rule]
        if rule in self.ignored:
            return
        if len(self._seen) >= MOST_FINDINGS:
            self.left_out += 1
            return
        found = Finding(
            rule, entry.severity, message, file, line, column, tuple(evidence), hint or entry.hint
        )
        self._seen[found] = None

    def sorted(self) -> list[Finding]:
        """All findings by file and line."""
        return sorted(self._seen, key=Finding.order)
