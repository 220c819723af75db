"""What is kept of a version beside the repository: manifest.json, report.json, golden.npz.

Nothing here differs between two builds from the same inputs with the same tools: no times, no absolute
paths, no host names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from repobuild.artifact import tree_digests
from repobuild.emit.config import text_digest
from repobuild.emit.model import Emission
from repobuild.recipe.types import Recipe
from repobuild.report import Report
from repobuild.verify.replay import Golden
from repobuild.worker.arrays import save_batch

FORMAT = 1
INPUT, OUTPUT = "input", "output"


def write_records(
    folder: Path,
    recipe: Recipe,
    report: Report,
    emission: Emission,
    golden: Golden,
    *,
    carries_code: bool = False,
    ensemble: str | None = None,
) -> None:
    """Write the three files.

    Args:
        folder: Existing folder.
        recipe: The recipe.
        report: Its outcome.
        emission: The staged model.
        golden: Rows that were replayed, and the model's answers.
        carries_code: Whether what a server loads is code that it runs.
        ensemble: The ensemble that the model is, or is a step of.

    Raises:
        OSError: The file system refuses.
    """
    requests = [(golden.wire, golden.want), *golden.further]
    batch = {
        f"{prefix(side, number)}{name}": array
        for number, (wire, want) in enumerate(requests)
        for side, arrays in ((INPUT, wire), (OUTPUT, want))
        for name, array in arrays.items()
    }
    save_batch(folder / "golden.npz", batch)
    _write_json(folder / "report.json", report.to_dict())
    manifest = _manifest(recipe, report, emission, golden) | {"carries_code": carries_code}
    _write_json(folder / "manifest.json", manifest | ({"ensemble": ensemble} if ensemble else {}))


def prefix(side: str, number: int) -> str:
    """What precedes a tensor's name in ``golden.npz``: ``input/`` in the first request, then ``input@1/``."""
    return f"{side}@{number}/" if number else f"{side}/"


def _manifest(recipe: Recipe, report: Report, emission: Emission, golden: Golden) -> dict[str, Any]:
    version = emission.folder / str(report.version)
    bounds = {o.name: golden.tolerance.of(o.name) for o in emission.signature.outputs}
    return {
        "format": FORMAT,
        "model": recipe.name,
        "version": report.version,
        "files": {
            name: {"sha256": digest, "bytes": (version / name).stat().st_size}
            for name, digest in tree_digests(version).items()
        },
        "config": {"sha256": text_digest(emission.config_text), "made_by_repobuild": not emission.kept},
        "warmup": list(emission.warmup_files),
        "recipe": {"sha256": recipe.digest},
        "source": report.source,
        "samples": report.samples,
        "tolerance": {
            name: {"atol": b.atol, "rtol": b.rtol, **({"scaled": True} if b.scaled else {})}
            for name, b in bounds.items()
        },
        "checks": {c.name: c.outcome for c in (*report.checks, *report.verification)},
        "tools": {t.name: t.version for t in report.tools},
    }


def _write_json(path: Path, document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
