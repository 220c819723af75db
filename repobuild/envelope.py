"""What a command answers with: words for people, or one versioned JSON document for machines."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import click

from repobuild.errors import EXIT_INTERRUPTED, EXIT_OK, Evidence, RepobuildError, printable

FORMAT = 1
JSON_COMMANDS = frozenset({"convert", "build", "plan", "inspect", "validate", "doctor", "init"})
"""Commands with a result of their own; the others print a document already."""

Outcome = Literal["ok", "error", "interrupted"]


class AlreadyTold(Exception):
    """Raised to end a command with the status of an error that has been printed.

    Attributes:
        error: The error.
    """

    def __init__(self, error: RepobuildError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True)
class Dialogue:
    """One run of the command line.

    Attributes:
        command: The command's name, ``None`` when none was named.
        json: Whether standard output is to hold one envelope and nothing else.
        result: JSON-ready result.
        notes: What a reader should know.
    """

    command: str | None = None
    json: bool = False
    result: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, words: Sequence[str]) -> Dialogue:
        """What the words of a command line ask for, also where the rest of them is wrong."""
        own = list(words)[: list(words).index("--")] if "--" in words else list(words)
        command = next((w for w in own if not w.startswith("-")), None)
        return cls(command, command in JSON_COMMANDS and "--json" in own)

    def say(self, text: str) -> None:
        """Words on the result: standard output, or standard error where that belongs to the envelope."""
        click.echo(printable(text), err=self.json)

    def note(self, text: str) -> None:
        """Something that a reader should know."""
        self.notes.append(text)
        click.echo(f"note: {printable(text)}", err=True)

    def close(self, exit_code: int, error: dict[str, Any] | None = None) -> None:
        """Print the envelope where one is wanted; ``--help`` has neither result nor error, and gets none."""
        if not self.json or (self.result is None and error is None and exit_code == EXIT_OK):
            return
        click.echo(self.envelope(exit_code, error))

    def envelope(self, exit_code: int, error: dict[str, Any] | None = None) -> str:
        """The envelope as one line of ASCII."""
        document = {
            "format": FORMAT,
            "command": self.command,
            "outcome": _outcome(exit_code),
            "exit_code": exit_code,
            "result": self.result,
            "error": error,
            "notes": self.notes,
        }
        return json.dumps(document, allow_nan=False)


def error_document(error: RepobuildError) -> dict[str, Any]:
    """The ``error`` of an envelope."""
    return {k: v for k, v in error.to_dict().items() if k != "kind"}


def bare_error(code: str, message: str, hint: str | None = None) -> dict[str, Any]:
    """The ``error`` of an envelope for what is no :class:`RepobuildError`."""
    return {"code": code, "message": message, "evidence": [], "hint": hint}


def annotate(error: RepobuildError) -> None:
    """In GitHub Actions, show an error beside the lines that it is about.

    Workflow commands are ``::error file=...,line=...::message``; in a message ``%``, CR and LF are escaped,
    in a property also ``:`` and ``,`` (actions/toolkit, packages/core/src/command.ts).
    """
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    placed = [e for e in error.evidence if e.file and Path(e.file).is_file()]
    for item in placed or [Evidence("")]:
        properties = {"file": item.file, "line": item.line, "title": f"repobuild {error.code}"}
        told = ",".join(f"{k}={_property(str(v))}" for k, v in properties.items() if v is not None)
        key = f"{item.key}: " if item.key else ""
        text = printable(f"{error.message}: {key}{item.text}" if item.text else error.message)
        click.echo(f"::error {told}::{_message(text)}", err=True)


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(printable(text)).replace(":", "%3A").replace(",", "%2C")


def _outcome(exit_code: int) -> Outcome:
    if exit_code == EXIT_OK:
        return "ok"
    return "interrupted" if exit_code == EXIT_INTERRUPTED else "error"
