"""What was compared, and how it came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from repobuild.artifact import Tool
from repobuild.tensors import Signature

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Deviation:
    """The element where two answers lie furthest apart.

    Attributes:
        output: Output name.
        row: Row of the samples, counted from 0.
        at: Index inside that row's answer.
        got: What the artifact answered.
        want: What the model answered.
        absolute: ``|got - want|``, infinite where one is NaN or text differs.
        relative: ``absolute / |want|``, infinite where ``want`` is 0 and ``got`` is not.
    """

    output: str
    row: int
    at: tuple[int, ...]
    got: str
    want: str
    absolute: float
    relative: float

    def __str__(self) -> str:
        index = "".join(f"[{i}]" for i in self.at)
        return (
            f"output '{self.output}', row {self.row}{index}: got {self.got}, the model says {self.want}"
            f" (absolute {self.absolute:.3g}, relative {self.relative:.3g})"
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form; infinities as text, since JSON has none."""
        return {
            "output": self.output,
            "row": self.row,
            "at": list(self.at),
            "got": self.got,
            "want": self.want,
            "absolute": _json_number(self.absolute),
            "relative": _json_number(self.relative),
        }


@dataclass(frozen=True, slots=True)
class Pass:
    """The check held."""

    detail: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The check did not hold."""

    detail: str


@dataclass(frozen=True, slots=True)
class Skip:
    """The check was not made."""

    reason: str


Verdict: TypeAlias = Pass | Fail | Skip


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison.

    Attributes:
        name: What was compared, such as ``equal: probabilities``.
        verdict: How it came out.
        worst: The largest deviation seen, also when it is within tolerance.
        hint: What to try when it failed.
    """

    name: str
    verdict: Verdict
    worst: Deviation | None = None
    hint: str | None = None

    @property
    def outcome(self) -> str:
        """``pass``, ``fail`` or ``skip``."""
        return type(self.verdict).__name__.lower()

    @property
    def detail(self) -> str:
        """The sentence behind the outcome."""
        return self.verdict.reason if isinstance(self.verdict, Skip) else self.verdict.detail

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {
            "name": self.name,
            "outcome": self.outcome,
            "detail": self.detail,
            "worst": self.worst.to_dict() if self.worst else None,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one conversion, without anything that differs between two equal builds.

    Attributes:
        model: Model name in the repository.
        version: Version folder, ``None`` when the build was refused before one was chosen.
        changed: Whether the repository changed; equal content keeps its version.
        new_version: Whether a version was added; without one, only config.pbtxt or the files that it names
            changed.
        source: Facts about the trained model (kind, digest, estimator, versions).
        samples: Facts about the samples (digest, rows).
        signature: Tensors of the emitted model, ``None`` when it was refused before export.
        checks: Comparisons with the model, in the order made.
        verification: Comparisons through the server, in the order made.
        notes: What a reader should know, such as a choice that was made for them.
        tools: Versions of what took part.
        facts: JSON-ready facts about decisions: target release, precision, task metrics.
    """

    model: str
    version: int | None
    changed: bool
    source: dict[str, Any]
    samples: dict[str, Any]
    signature: Signature | None
    checks: tuple[Check, ...]
    verification: tuple[Check, ...]
    notes: tuple[str, ...]
    tools: tuple[Tool, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    new_version: bool = False

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that did not hold."""
        return tuple(c for c in (*self.checks, *self.verification) if isinstance(c.verdict, Fail))

    def to_dict(self) -> dict[str, Any]:
        """The JSON document that report.json holds."""
        signature = self.signature
        return {
            "format": FORMAT,
            "model": self.model,
            "version": self.version,
            "outcome": "fail" if self.failed else "pass",
            "source": self.source,
            "samples": self.samples,
            "signature": signature
            and {
                "batched": signature.batched,
                "inputs": [t.to_dict() for t in signature.inputs],
                "outputs": [t.to_dict() for t in signature.outputs],
            },
            "checks": [c.to_dict() for c in self.checks],
            "verification": [c.to_dict() for c in self.verification],
            **self.facts,
            "notes": list(self.notes),
            "tools": {t.name: t.version for t in self.tools},
        }


def _json_number(value: float) -> float | str:
    return value if value - value == 0 else str(value)
