"""Repositories and model folders: models, versions, configuration, and the records beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from repobuild.emit.config import CONFIG_FILE, is_ours, read_config
from repobuild.emit.versions import version_numbers
from repobuild.emit.workshop import state_folder
from repobuild.errors import Evidence, InputInvalid, RepobuildError, from_oserror
from repobuild.inspecting.interface import Inspection

RECORDS = ("manifest.json", "report.json", "golden.npz")


def is_model_folder(folder: Path) -> bool:
    """Whether a folder is that of a model: it has a config.pbtxt or a version folder."""
    return (folder / CONFIG_FILE).is_file() or bool(version_numbers(folder))


def model_folders(repository: Path) -> tuple[Path, ...]:
    """The folders of a repository's models, sorted by name; others are left out."""
    inside = (p for p in repository.iterdir() if p.is_dir() and not p.name.startswith("."))
    return tuple(sorted(p for p in inside if is_model_folder(p)))


def inspect_folder(path: Path) -> Inspection:
    """Tell what a repository, or the folder of one model, holds.

    Raises:
        InputInvalid: ``repository-empty``: it is neither.
        EnvironmentLacking: It cannot be read.
    """
    try:
        if is_model_folder(path):
            return Inspection(str(path), "model-folder", *_model(path))
        models = model_folders(path)
        if not models:
            raise no_models(path)
        facts: dict[str, Any] = {}
        remarks: list[str] = []
        for model in models:
            facts[model.name], told = _model(model)
            remarks.extend(f"{model.name}: {t}" for t in told)
    except OSError as problem:
        raise from_oserror(problem, "reading the repository") from problem
    return Inspection(str(path), "repository", {"models": facts}, tuple(remarks))


def no_models(path: Path) -> InputInvalid:
    """The error for a folder without models."""
    return InputInvalid(
        "repository-empty",
        f"{path} is neither a model repository nor the folder of a model",
        (Evidence(f"no folder in it has a {CONFIG_FILE} or a version", file=str(path)),),
        "name the folder that is given to Triton as --model-repository",
    )


def _model(folder: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    remarks = []
    try:
        read = read_config(folder)
    except RepobuildError as problem:
        read = None
        remarks.append(f"{CONFIG_FILE} does not parse: {problem.evidence[0].text}")
    if read is None and not remarks:
        remarks.append(f"there is no {CONFIG_FILE}")
    versions = {}
    for number in version_numbers(folder):
        files = sorted(p for p in (folder / str(number)).rglob("*") if p.is_file())
        versions[str(number)] = {
            "files": {p.relative_to(folder / str(number)).as_posix(): p.stat().st_size for p in files},
            "records": _records(folder, number),
        }
    if not versions:
        remarks.append("there is no version folder")
    facts = {
        "versions": versions,
        "config": None if read is None else _config(*read),
        "warmup_files": _names(folder / "warmup"),
        "label_files": _labels(folder, None if read is None else read[1]),
    }
    return facts, tuple(remarks)


def _config(text: str, message: Any) -> dict[str, Any]:
    return {
        "made_by_repobuild": is_ours(text),
        "backend": message.backend or message.platform,
        "max_batch_size": message.max_batch_size,
        "inputs": [_tensor(t) for t in message.input],
        "outputs": [_tensor(t) for t in message.output],
        "scheduling": message.WhichOneof("scheduling_choice"),
        "steps": [_step(s) for s in message.ensemble_scheduling.step],
        "instances": [{"count": g.count, "kind": type(g).Kind.Name(g.kind)} for g in message.instance_group],
        "warmup": [s.name for s in message.model_warmup],
    }


def _step(step: Any) -> dict[str, Any]:
    return {
        "model": step.model_name,
        "version": step.model_version,
        "input_map": dict(step.input_map),
        "output_map": dict(step.output_map),
    }


def _tensor(item: Any) -> dict[str, Any]:
    kind = item.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[item.data_type].name
    return {"name": item.name, "data_type": kind, "dims": list(item.dims)}


def _records(folder: Path, number: int) -> dict[str, Any] | None:
    """What the manifest beside the repository says, ``None`` without records."""
    home = state_folder(folder.parent) / folder.name / str(number)
    if not home.is_dir():
        return None
    try:
        manifest = json.loads((home / RECORDS[0]).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        manifest = {}
    source = manifest.get("source") if isinstance(manifest, dict) else None
    return {
        "present": [name for name in RECORDS if (home / name).is_file()],
        "source": source.get("model") if isinstance(source, dict) else None,
        "tools": manifest.get("tools") if isinstance(manifest, dict) else None,
        "ensemble": manifest.get("ensemble") if isinstance(manifest, dict) else None,
    }


def _labels(folder: Path, message: Any) -> list[str]:
    named = {o.label_filename for o in message.output if o.label_filename} if message else set()
    return sorted(name for name in named if (folder / name).is_file())


def _names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
