"""The records of a version, read back from ``<repository>.repobuild/<model>/<version>/``."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repobuild.artifact import tree_digests
from repobuild.emit.records import FORMAT, INPUT, OUTPUT, prefix
from repobuild.recipe.types import Bounds, Tolerance
from repobuild.tensors import Array, DType, Signature, TensorSpec
from repobuild.verify.replay import Golden
from repobuild.worker.arrays import load_batch


class RecordsUnusable(Exception):
    """Raised for records that are missing or damaged, with the reason."""


@dataclass(frozen=True, slots=True)
class Records:
    """What is known of a version.

    Attributes:
        files: ``{relative path: sha256}`` of its files when it was built.
        config_digest: sha256 of the config.pbtxt it was built with.
        signature: Its tensors.
        golden: Rows and the model's own answers to them.
        carries_code: Whether its files are code that a server runs.
    """

    files: dict[str, str]
    config_digest: str
    signature: Signature
    golden: Golden
    carries_code: bool


def read_records(folder: Path, model: str, version: int) -> Records:
    """Read the records of one version.

    Args:
        folder: ``<repository>.repobuild/<model>/<version>``.
        model: The model that they must be of.
        version: The version that they must be of.

    Raises:
        RecordsUnusable: A file is missing, damaged, or of another version.
    """
    manifest = _json(folder / "manifest.json")
    report = _json(folder / "report.json")
    try:
        if manifest["format"] != FORMAT:
            raise RecordsUnusable(f"manifest.json has format {manifest['format']}, and {FORMAT} is read here")
        if (manifest["model"], manifest["version"]) != (model, version):
            raise RecordsUnusable(
                f"manifest.json is of {manifest['model']} version {manifest['version']}, not of this one"
            )
        return Records(
            files={name: str(entry["sha256"]) for name, entry in manifest["files"].items()},
            config_digest=str(manifest["config"]["sha256"]),
            signature=_signature(report["signature"]),
            golden=_golden(folder / "golden.npz", manifest.get("tolerance", {})),
            carries_code=bool(manifest["carries_code"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise RecordsUnusable(f"they are damaged: {type(problem).__name__}: {problem}") from None


def changed_files(folder: Path, files: dict[str, str]) -> list[str]:
    """What is other in a version folder than its records say, one sentence a file.

    Raises:
        OSError: A file cannot be read.
    """
    now = tree_digests(folder)
    told = []
    for name in sorted(files.keys() | now.keys()):
        if name not in now:
            told.append(f"{name} is missing")
        elif name not in files:
            told.append(f"{name} was not there when it was built")
        elif now[name] != files[name]:
            told.append(f"{name} has sha256 {now[name]}, and was built with {files[name]}")
    return told


def _json(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordsUnusable(f"{file.name} is missing") from None
    except (OSError, ValueError) as problem:
        raise RecordsUnusable(f"{file.name} cannot be read: {problem}") from None
    if not isinstance(document, dict):
        raise RecordsUnusable(f"{file.name} does not hold a mapping")
    return document


def _signature(document: dict[str, Any]) -> Signature:
    def tensors(side: str) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(t["name"], DType(t["datatype"]), tuple(None if d < 0 else d for d in t["shape"]))
            for t in document[side]
        )

    return Signature(tensors("inputs"), tensors("outputs"), bool(document["batched"]))


def _golden(file: Path, tolerance: dict[str, Any]) -> Golden:
    try:
        batch = load_batch(file)
    except FileNotFoundError:
        raise RecordsUnusable(f"{file.name} is missing") from None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as problem:
        raise RecordsUnusable(f"{file.name} cannot be read: {problem}") from None
    requests: list[tuple[dict[str, Array], dict[str, Array]]] = []
    while True:
        wire, want = (_side(batch, prefix(side, len(requests))) for side in (INPUT, OUTPUT))
        if not wire or not want:
            break
        requests.append((wire, want))
    if not requests:
        raise RecordsUnusable(f"{file.name} holds no rows")
    bounds = {
        name: Bounds(float(b["atol"]), float(b["rtol"]), bool(b.get("scaled", False)))
        for name, b in tolerance.items()
    }
    return Golden(*requests[0], Tolerance(by_output=bounds), tuple(requests[1:]))


def _side(batch: dict[str, Array], start: str) -> dict[str, Array]:
    return {name.removeprefix(start): array for name, array in batch.items() if name.startswith(start)}
