"""Findings as text, JSON and SARIF."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from repobuild.errors import printable
from repobuild.lint.finding import Finding, Severity
from repobuild.lint.rules import RULES
from repobuild.lint.run import Result
from repobuild.releases import Release

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_text(results: Sequence[Result], release: Release) -> str:
    """One line a finding, ``path:line: severity[rule]: message``, its evidence and hint, and a last line."""
    lines: list[str] = []
    for result in results:
        for found in result.findings:
            where = str(result.root / found.file) + (f":{found.line}" if found.line else "")
            # A finding is one line whatever the names in it hold, so that logs can be read by line.
            lines.append(
                f"{_one_line(where)}: {found.severity.value}[{found.rule}]: {_one_line(found.message)}"
            )
            lines += [f"    - {_one_line(e)}" for e in found.evidence]
            if found.hint:
                lines.append(f"    hint: {_one_line(found.hint)}")
        if result.left_out:
            lines.append(f"{_one_line(str(result.path))}: {result.left_out} more findings are left out")
    counts = count(results)
    models = sum(len(r.models) for r in results)
    told = ", ".join(f"{counts[s]} {s.value}{'' if counts[s] == 1 else 's'}" for s in Severity if counts[s])
    plural = "" if models == 1 else "s"
    lines.append(f"{told or 'nothing found'} in {models} model{plural}, for Triton {release.name}")
    return "\n".join(lines) + "\n"


def as_json(results: Sequence[Result], release: Release) -> str:
    """A versioned document."""
    counts = count(results)
    document = {
        "format": 1,
        "kind": "lint",
        "target": release.name,
        "summary": {s.value: counts[s] for s in Severity},
        "results": [
            {
                "path": str(result.path),
                "repository": str(result.root),
                "models": list(result.models),
                "left_out": result.left_out,
                "findings": [_finding(f) for f in result.findings],
            }
            for result in results
        ],
    }
    return _json(document)


def as_sarif(results: Sequence[Result], release: Release) -> str:
    """SARIF 2.1.0, one run; paths are relative to the present folder where they lie below it."""
    from repobuild import __version__

    used = sorted({f.rule for r in results for f in r.findings})
    document = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "repobuild lint",
                        "version": __version__,
                        "rules": [_sarif_rule(name) for name in used],
                    }
                },
                "properties": {"target": release.name},
                "results": [
                    _sarif_result(result, found, used.index(found.rule))
                    for result in results
                    for found in result.findings
                ],
            }
        ],
    }
    return _json(document)


def count(results: Sequence[Result]) -> Counter[Severity]:
    """Findings by severity."""
    return Counter(f.severity for r in results for f in r.findings)


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "rule": found.rule,
        "severity": found.severity.value,
        "message": found.message,
        "file": found.file,
        "line": found.line,
        "column": found.column,
        "evidence": list(found.evidence),
        "hint": found.hint,
    }


def _sarif_rule(name: str) -> dict[str, Any]:
    rule = RULES[name]
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.what},
        "help": {"text": f"{rule.hint}. From: {rule.source}"},
        "defaultConfiguration": {"level": rule.severity.value},
    }


def _sarif_result(result: Result, found: Finding, index: int) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(result.root, found.file)}}
    if found.line:
        place["region"] = {"startLine": found.line}
        if found.column:
            place["region"]["startColumn"] = found.column
    told = "; ".join([found.message, *found.evidence, *([found.hint] if found.hint else [])])
    return {
        "ruleId": found.rule,
        "ruleIndex": index,
        "level": found.severity.value,
        "message": {"text": told},
        "locations": [{"physicalLocation": place}],
    }


def _uri(root: Path, file: str) -> str:
    """A relative reference: from the present folder if the repository is in it, else from the repository."""
    base = os.path.relpath(root)
    path = file if base.startswith("..") else os.path.normpath(os.path.join(base, file))  # noqa: PTH118
    return quote(path.replace(os.sep, "/").encode("utf-8", "surrogateescape"))


def _json(document: Any) -> str:
    return json.dumps(_whole(document), indent=1) + "\n"


def _whole(value: Any) -> Any:
    """A document without the lone surrogates of names that are no UTF-8: strict readers refuse them."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _one_line(text: str) -> str:
    return printable(text.replace("\r", "\\r").replace("\n", "\\n"))
