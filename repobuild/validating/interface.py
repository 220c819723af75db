"""What a validation finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from repobuild.errors import Evidence, InputInvalid, RepobuildError, VerificationFailed
from repobuild.report import Fail, Pass, Skip, Verdict

About = Literal["config", "records", "files", "answers", "lint"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked.

    Attributes:
        model: Model name.
        version: Version number, ``None`` for what concerns the whole model.
        about: What was checked.
        verdict: How it came out.
        file: The file at fault.
        line: The line in it.
    """

    model: str
    version: int | None
    about: About
    verdict: Verdict
    file: str | None = None
    line: int | None = None

    @property
    def outcome(self) -> str:
        """``pass``, ``fail`` or ``skip``."""
        return type(self.verdict).__name__.lower()

    @property
    def detail(self) -> str:
        """The sentence behind the outcome."""
        return self.verdict.reason if isinstance(self.verdict, Skip) else self.verdict.detail

    @property
    def place(self) -> str:
        """``model`` or ``model/version``."""
        return self.model if self.version is None else f"{self.model}/{self.version}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {
            "model": self.model,
            "version": self.version,
            "about": self.about,
            "outcome": self.outcome,
            "detail": self.detail,
            "file": self.file,
            "line": self.line,
        }


@dataclass(frozen=True, slots=True)
class Validation:
    """All that was checked in a repository.

    Attributes:
        repository: As it was named.
        findings: In the order in which they were made.
    """

    repository: str
    findings: tuple[Finding, ...]

    def error(self) -> RepobuildError | None:
        """What is wrong with the repository: its files before its answers, ``None`` when nothing is."""
        failed = [f for f in self.findings if isinstance(f.verdict, Fail)]
        answers = [f for f in failed if f.about == "answers"]
        files = [f for f in failed if f.about != "answers"]
        if files:
            return InputInvalid(
                "repository-damaged",
                f"{self.repository} is not as it was built",
                tuple(_evidence(f) for f in (*files, *answers)),
                "build the models again into it, or fetch it again",
            )
        if answers:
            return VerificationFailed(
                "answers-changed",
                f"models in {self.repository} do not answer as they did when they were built",
                tuple(_evidence(f) for f in answers),
                "compare the tool versions in manifest.json with those installed, and build again",
            )
        return None

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {"repository": self.repository, "findings": [f.to_dict() for f in self.findings]}


def passed(model: str, version: int | None, about: About, detail: str) -> Finding:
    """A check that held."""
    return Finding(model, version, about, Pass(detail))


def failed(model: str, version: int | None, about: About, detail: str, file: object = None) -> Finding:
    """A check that did not hold."""
    return Finding(model, version, about, Fail(detail), None if file is None else str(file))


def skipped(model: str, version: int | None, about: About, reason: str) -> Finding:
    """A check that was not made."""
    return Finding(model, version, about, Skip(reason))


def _evidence(finding: Finding) -> Evidence:
    return Evidence(
        f"{finding.about}: {finding.detail}", file=finding.file, line=finding.line, key=finding.place
    )
