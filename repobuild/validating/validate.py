"""The checks of ``repobuild validate``, which change nothing in the repository."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from repobuild.emit import libraries, surroundings, warmup
from repobuild.emit.commit import JOURNAL
from repobuild.emit.config import (
    CONFIG_FILE,
    config_mistakes,
    is_ours,
    read_config,
    text_digest,
    warmup_mistakes,
)
from repobuild.emit.versions import version_numbers
from repobuild.emit.workshop import state_folder
from repobuild.errors import Evidence, InputInvalid, RepobuildError, VerificationFailed, from_oserror
from repobuild.inspecting.repository import is_model_folder, model_folders, no_models
from repobuild.lint.ensembles import NEWEST
from repobuild.lint.finding import Severity
from repobuild.lint.model import selected_versions
from repobuild.lint.run import lint
from repobuild.releases import newest
from repobuild.report import Fail
from repobuild.tensors import Signature
from repobuild.triton import format_config
from repobuild.validating.interface import Finding, Validation, failed, passed, skipped
from repobuild.validating.records import Records, RecordsUnusable, changed_files, read_records
from repobuild.verify.replay import Subject, replay
from repobuild.verify.server import BundledServer
from repobuild.watch import Silent, Watch, step


def validate(repository: Path, models: Sequence[str] = (), watch: Watch | None = None) -> Validation:
    """Check models of a repository: configuration, records, files, and answers on the bundled server.

    The server runs on copies, one a version, so that every version is asked, whatever the version policy is.
    A version that is not as it was built is not served.

    Args:
        repository: The repository.
        models: Names of models, all of them when empty.
        watch: Told of the steps.

    Raises:
        InputInvalid: It is no repository, or a model is not in it.
        EnvironmentLacking: It cannot be read, or the server cannot be started.
    """
    watch = watch or Silent()
    findings: list[Finding] = []
    if (state_folder(repository) / JOURNAL).exists():
        told = "a build is in the middle of its last step, or was killed in it; the next build settles that"
        findings.append(skipped(".", None, "records", told))
    try:
        folders = _folders(repository, models)
        with step(watch, "lint") as done:
            errors = list(_lint(repository, [f.name for f in folders]))
            findings.extend(errors)
            done.say(f"{len(errors) or 'no'} errors")
        for folder in folders:
            with step(watch, folder.name) as done:
                mine = list(_model(repository, folder))
                findings.extend(mine)
                bad = sum(isinstance(f.verdict, Fail) for f in mine)
                done.say(f"{len(mine)} checks, {bad or 'none'} failed")
    except OSError as problem:
        raise from_oserror(problem, "validating the repository") from problem
    return Validation(str(repository), tuple(findings))


def _lint(repository: Path, models: Sequence[str]) -> Iterator[Finding]:
    """The errors that lint finds in these models, and in the repository itself."""
    for item in lint(repository, newest()).findings:
        model = item.file.partition("/")[0]
        if item.severity is Severity.ERROR and model in (".", *models):
            text = f"{item.message} ({item.rule})"
            yield Finding(model, None, "lint", Fail(text), str(repository / item.file), item.line)


def _folders(repository: Path, models: Sequence[str]) -> list[Path]:
    if not repository.is_dir():
        raise InputInvalid(
            "repository-missing",
            f"there is no repository {repository}",
            (Evidence("no such folder", file=str(repository)),),
            "name the folder that convert and build wrote",
        )
    have = {f.name: f for f in model_folders(repository)}
    if not have:
        error = no_models(repository)
        if is_model_folder(repository):
            error = InputInvalid(error.code, error.message, error.evidence, "name the folder above it")
        raise error
    absent = [name for name in models if name not in have]
    if absent:
        raise InputInvalid(
            "model-absent",
            f"{repository} has no model {', '.join(absent)}",
            (Evidence(f"it has {', '.join(have)}", file=str(repository)),),
            "name models of the repository, or none for all",
        )
    return [have[name] for name in (dict.fromkeys(models) if models else have)]


def _model(repository: Path, folder: Path) -> Iterator[Finding]:
    model = folder.name
    try:
        read = read_config(folder)
    except RepobuildError as problem:
        first = problem.evidence[0]
        yield Finding(model, None, "config", Fail(first.text), first.file, first.line)
        return
    if read is None:
        yield failed(model, None, "config", f"there is no {CONFIG_FILE}", folder)
        return
    text, message = read
    changed = surroundings.changed_files(folder, message) if is_ours(text) else ()
    wrong = [
        *_config_wrong(folder, message),
        *(f"{f.relative_to(folder).as_posix()} was changed since it was written" for f in changed),
    ]
    if wrong:
        yield from (failed(model, None, "config", w, folder / CONFIG_FILE) for w in wrong)
    else:
        yield passed(model, None, "config", f"{CONFIG_FILE} parses, and its warm-up files are there")
    versions = version_numbers(folder)
    if not versions:
        yield failed(model, None, "files", "there is no version folder", folder)
    for version in versions:
        yield from _version(repository, folder, version, text, message, latest=version == versions[-1])


def _config_wrong(folder: Path, message: Any) -> Iterator[str]:
    if message.name not in ("", folder.name):
        yield f"name '{message.name}' is not that of the folder"
    warm = folder / warmup.FOLDER
    files = {p.name: p.read_bytes() for p in warm.iterdir() if p.is_file()} if warm.is_dir() else {}
    yield from warmup_mistakes(message, files)
    for output in message.output:
        if output.label_filename and not (folder / output.label_filename).is_file():
            yield f"output '{output.name}' names a label file '{output.label_filename}' that is not there"
    for name in libraries.absent(folder, message):
        yield f"model_operations names a library '{name}' that is not there"


def _version(
    repository: Path, folder: Path, version: int, text: str, message: Any, *, latest: bool
) -> Iterator[Finding]:
    model = folder.name
    home = state_folder(repository) / model / str(version)
    if not home.exists() and not is_ours(text):
        yield skipped(model, version, "records", "there are none: repobuild did not build it")
        return
    try:
        records = read_records(home, model, version)
    except RecordsUnusable as problem:
        yield failed(model, version, "records", str(problem), home)
        return
    yield passed(model, version, "records", "manifest.json, report.json and golden.npz are whole")
    if latest and text_digest(text) != records.config_digest:
        yield skipped(model, version, "config", f"{CONFIG_FILE} was changed since the version was built")
    changes = changed_files(folder / str(version), records.files)
    if changes:
        yield from (failed(model, version, "files", c, folder / str(version)) for c in changes)
        yield skipped(
            model, version, "answers", "its files are not those that were built, so it was not served"
        )
        return
    yield passed(model, version, "files", f"{len(records.files)} as they were built")
    if records.carries_code:
        yield skipped(model, version, "answers", "it carries code, which is not run here")
        return
    if message.platform == "ensemble" and not latest:
        yield skipped(model, version, "answers", "the configuration joins the steps of the newest version")
        return
    wrong = list(config_mistakes(message, records.signature))
    if not wrong:
        yield from _answers(folder, version, message, records)
    elif version in selected_versions(version_numbers(folder), message):
        yield from (failed(model, version, "config", w, folder / CONFIG_FILE) for w in wrong)
    else:
        why = "the version policy does not serve it, and the configuration is that of another interface"
        yield skipped(model, version, "answers", f"{why}: {wrong[0]}")


def _served(message: Any, records: Records) -> Signature:
    """The version's tensors, of the outputs those that the configuration serves."""
    named = {o.name for o in message.output}
    served = tuple(o for o in records.signature.outputs if o.name in named)
    return Signature(records.signature.inputs, served, records.signature.batched)


def _answers(folder: Path, version: int, message: Any, records: Records) -> Iterator[Finding]:
    """Serve a copy with that one version, and replay its golden rows."""
    model = folder.name
    signature = _served(message, records)
    with tempfile.TemporaryDirectory(prefix="repobuild-validate-") as scratch:
        copy = Path(scratch) / "repository"
        _copy(folder, version, message, copy / model)
        absent = _copy_steps(folder.parent, message, copy)
        if absent:
            yield failed(model, version, "answers", f"it names {absent}, which is not there", folder)
            return
        subject = Subject(model, version, signature, message, records.golden.tolerance)
        try:
            with BundledServer(copy, Path(scratch)) as server:
                checks = replay(server, subject, records.golden)
        except VerificationFailed as problem:
            lines = "; ".join(e.text for e in problem.evidence[-3:])
            yield failed(model, version, "answers", f"{problem.message}: {lines}")
            return
    for check in checks:
        verdict = type(check.verdict)(f"{check.name.removeprefix('served: ')}: {check.detail}")
        yield Finding(model, version, "answers", verdict)


def _copy_steps(repository: Path, message: Any, to: Path) -> str:
    """The steps of an ensemble in the versions that it names; what is absent, empty when nothing is."""
    for member in message.ensemble_scheduling.step:
        home, version = repository / member.model_name, member.model_version
        numbers = version_numbers(home)
        if version == NEWEST and numbers:
            version = numbers[-1]
        read = read_config(home) if home.is_dir() else None
        if read is None or version not in numbers:
            return f"version {member.model_version} of {member.model_name}"
        if not (to / member.model_name).exists():
            _copy(home, version, read[1], to / member.model_name)
    return ""


def _copy(folder: Path, version: int, message: Any, to: Path) -> None:
    """The model folder with one version; a policy that names others would keep it from being loaded."""
    shutil.copytree(folder, to, ignore=lambda at, names: _others(Path(at), names, folder, version))
    only = type(message)()
    only.CopyFrom(message)
    only.ClearField("version_policy")
    (to / CONFIG_FILE).write_text(format_config(only), encoding="utf-8")


def _others(at: Path, names: list[str], folder: Path, version: int) -> set[str]:
    return {n for n in names if n.isdigit() and n != str(version)} if at == folder else set()
