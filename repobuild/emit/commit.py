"""The step into the repository: after a kill at any moment the old or the whole new version serves.

A new model is one rename of its folder. For a further version: (1) warm-up files are added under names made
from their content; (2) the version folder is renamed in; (3) config.pbtxt is replaced by a rename; (4) what
nothing uses is removed. The journal, written before the first of these and removed after the last, lets the
next command finish a step whose deciding rename has happened, or undo one whose has not.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from repobuild.emit import together, warmup
from repobuild.emit.config import CONFIG_FILE, read_config
from repobuild.emit.model import Emission
from repobuild.emit.surroundings import staged_files, unused_files
from repobuild.emit.versions import equal_version, look, next_version
from repobuild.emit.workshop import Workshop, locked
from repobuild.errors import Evidence, VerificationFailed, from_oserror
from repobuild.interrupts import deferred_interrupts

JOURNAL = ".journal"
FRESH_JOURNAL = ".journal.new"
Kind = Literal["new-model", "new-version", "new-config"]


@dataclass(frozen=True, slots=True)
class Step:
    """What the journal holds.

    Attributes:
        kind: ``new-model``, ``new-version``, or ``new-config`` (same version, other configuration).
        token: The build's staging folder.
        model: Model name.
        version: Version number.
        added: Warm-up and label files that were not there before, relative to the model's folder.
    """

    kind: Kind
    token: str
    model: str
    version: int
    added: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the repository has now.

    Attributes:
        version: The version that serves.
        changed: Whether anything was written.
        new_version: Whether that was a version, and not only what lies beside an equal one.
    """

    version: int
    changed: bool
    new_version: bool

    def in_words(self) -> str:
        """What was done, on one line."""
        if self.new_version:
            return f"version {self.version}"
        also = ", its configuration changed" if self.changed else ""
        return f"version {self.version} is equal already{also}"


def commit(shop: Workshop, model: str, emission: Emission, write_records: Callable[[int], None]) -> Outcome:
    """Bring the staged model into the repository.

    Args:
        shop: The build's workshop.
        model: Model name.
        emission: The staged model. Its version folder is renamed if the number was taken meanwhile.
        write_records: Fills ``shop.meta`` once the version is known; called with the lock held.

    Raises:
        VerificationFailed: Another build changed the model's configuration meanwhile.
        EnvironmentLacking: The file system refuses; the repository is as it was.
    """
    try:
        with deferred_interrupts(), locked(shop.state):
            return _commit_locked(shop, model, emission, write_records)
    except OSError as problem:
        recover(shop)
        raise from_oserror(problem, "writing into the repository") from problem


def commit_together(
    shop: Workshop, arrivals: Sequence[together.Arrival], seen: Sequence[together.Arrival]
) -> None:
    """Bring the staged models of an ensemble into the repository, the ensemble last.

    Args:
        shop: The build's workshop; ``shop.meta`` has a folder of records for each model that arrives.
        arrivals: Models that change, the ensemble last; none leaves the repository as it is.
        seen: All models of the ensemble, which must be as they were looked at.

    Raises:
        VerificationFailed: Another build changed one of them meanwhile.
        EnvironmentLacking: The file system refuses; the repository is as it was.
    """
    try:
        with deferred_interrupts(), locked(shop.state):
            settle(shop.repository, shop.state)
            stale = together.stale(shop.repository, seen)
            if stale is not None:
                raise _changed_meanwhile(stale)
            for item in seen:
                if item.model not in {a.model for a in arrivals}:
                    _restore_records(shop.meta / item.model, shop.state, item.model, item.emission.version)
            if not arrivals:
                return
            step = together.prepare(shop.folder, shop.repository, arrivals, shop.token)
            _sync_tree(shop.folder)
            _write_journal(shop.state, step.to_dict())
            shop.repository.mkdir(exist_ok=True)
            together.forward(step, shop.folder, shop.repository)
            _finish_together(step, shop.repository, shop.state)
            (shop.state / JOURNAL).unlink()
            _sync(shop.state)
    except OSError as problem:
        recover(shop)
        raise from_oserror(problem, "writing into the repository") from problem


def recover(shop: Workshop) -> None:
    """Finish or undo a step that a killed build left, and remove what dead builds left.

    Raises:
        EnvironmentLacking: The file system refuses.
    """
    try:
        with locked(shop.state):
            settle(shop.repository, shop.state)
            shop.sweep()
    except OSError as problem:
        raise from_oserror(problem, "settling an interrupted build") from problem


def settle(repository: Path, state: Path) -> None:
    """Finish or undo the step in the journal, if there is one. Call it with the lock held.

    Raises:
        OSError: The file system refuses.
    """
    (state / FRESH_JOURNAL).unlink(missing_ok=True)
    try:
        data = json.loads((state / JOURNAL).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    if data["kind"] == "together":
        _settle_together(together.from_dict(data), repository, state)
        (state / JOURNAL).unlink()
        return
    step = Step(data["kind"], data["token"], data["model"], data["version"], tuple(data["added"]))
    places = _Places(repository, state, step)
    if places.decided():
        _finish(places)
    else:
        _undo(places)
    (state / JOURNAL).unlink()


def _settle_together(step: together.Together, repository: Path, state: Path) -> None:
    staging = state / ".staging" / step.token
    if together.decided(step, staging):
        _finish_together(step, repository, state)
    else:
        together.undo(step, staging, repository, made=True)


def _finish_together(step: together.Together, repository: Path, state: Path) -> None:
    for folder in together.finish(step, state / ".staging" / step.token, repository, state):
        _sync(folder)
    for model in step.versions:
        _remove_unused(repository / model)


@dataclass(frozen=True, slots=True)
class _Places:
    repository: Path
    state: Path
    step: Step

    @property
    def staging(self) -> Path:
        return self.state / ".staging" / self.step.token

    @property
    def staged(self) -> Path:
        return self.staging / "repository" / self.step.model

    @property
    def folder(self) -> Path:
        return self.repository / self.step.model

    @property
    def meta(self) -> Path:
        return self.state / self.step.model / str(self.step.version)

    def deciding(self) -> tuple[Path, Path]:
        """The rename that decides: its source is gone exactly when it has happened."""
        version = str(self.step.version)
        return {
            "new-model": (self.staged, self.folder),
            "new-version": (self.staged / version, self.folder / version),
            "new-config": (self.staged / CONFIG_FILE, self.folder / CONFIG_FILE),
        }[self.step.kind]

    def decided(self) -> bool:
        source, target = self.deciding()
        return not source.exists() and target.exists()


def _commit_locked(
    shop: Workshop, model: str, emission: Emission, write_records: Callable[[int], None]
) -> Outcome:
    settle(shop.repository, shop.state)
    seen, now = emission.existing, look(shop.repository, model)
    if (now is None) != (seen is None) or (now and seen and now.digest != seen.digest):
        raise _changed_meanwhile(model)
    staged, folder = shop.models / model, shop.repository / model
    if emission.kept:
        (staged / CONFIG_FILE).unlink()  # it was there for verification; the user's own is not touched
    same = equal_version(folder, now, staged / str(emission.version))
    missing = _missing_files(staged, folder)
    version = same if same is not None else next_version(now, shop.state, model)
    if same is None and version != emission.version:
        (staged / str(emission.version)).rename(staged / str(version))
    elif same is not None and same != emission.version:
        (staged / str(emission.version)).rename(staged / str(same))
    write_records(version)
    if same is not None and not missing:
        _restore_records(shop.meta, shop.state, model, version)
        return Outcome(version, changed=False, new_version=False)
    kind: Kind = "new-model" if now is None else "new-version" if same is None else "new-config"
    added = tuple(name for name in missing if name != CONFIG_FILE) if now is not None else ()
    _run(_Places(shop.repository, shop.state, Step(kind, shop.token, model, version, added)))
    return Outcome(version, changed=True, new_version=same is None)


def _changed_meanwhile(model: str) -> VerificationFailed:
    return VerificationFailed(
        "repository-changed",
        f"another build changed the model '{model}' while this one was at work",
        (Evidence("config.pbtxt is no longer the one that this build looked at"),),
        "run the command again",
    )


def _missing_files(staged: Path, folder: Path) -> tuple[str, ...]:
    """Files beside the version folders that the repository lacks or has with other content.

    They are given relative to the model's folder.
    """
    missing = []
    for file in sorted((*staged_files(staged), *staged.glob(CONFIG_FILE))):
        place = file.relative_to(staged)
        there = folder / place
        if not there.is_file() or there.read_bytes() != file.read_bytes():
            missing.append(place.as_posix())
    return tuple(missing)


def _restore_records(made: Path, state: Path, model: str, version: int) -> None:
    """Put records back that somebody removed; those that are there stay as they are."""
    meta = state / model / str(version)
    meta.mkdir(parents=True, exist_ok=True)
    for file in sorted(made.iterdir()):
        if not (meta / file.name).exists():
            file.rename(meta / file.name)


def _run(places: _Places) -> None:
    _sync_tree(places.staging)
    _write_journal(places.state, _plain(places.step))
    places.repository.mkdir(exist_ok=True)
    for name in places.step.added:
        target = places.folder / name
        target.parent.mkdir(exist_ok=True)
        (places.staged / name).rename(target)
    source, target = places.deciding()
    source.rename(target)
    _finish(places)
    (places.state / JOURNAL).unlink()
    _sync(places.state)


def _finish(places: _Places) -> None:
    """Everything after the deciding rename; may be run again."""
    config = places.staged / CONFIG_FILE
    if config.exists():
        config.replace(places.folder / CONFIG_FILE)
    _sync(places.folder)
    _sync(places.repository)
    places.meta.mkdir(parents=True, exist_ok=True)
    for file in sorted((places.staging / "meta").iterdir()):
        file.replace(places.meta / file.name)
    _sync(places.meta)
    _remove_unused(places.folder)


def _undo(places: _Places) -> None:
    for name in places.step.added:
        with contextlib.suppress(FileNotFoundError):
            (places.folder / name).unlink()
    with contextlib.suppress(OSError):
        (places.folder / warmup.FOLDER).rmdir()
    if places.step.kind == "new-model":
        with contextlib.suppress(OSError):
            places.repository.rmdir()
    shutil.rmtree(places.staging, ignore_errors=True)


def _remove_unused(folder: Path) -> None:
    """Drop files of ours that no configuration names; their names tell whose they are."""
    read = read_config(folder)
    if read is None:
        return
    others = "".join(p.read_text("utf-8", "replace") for p in folder.glob("configs/*.pbtxt"))
    for file in list(unused_files(folder, read[1], others)):
        file.unlink()


def _write_journal(state: Path, step: Mapping[str, Any]) -> None:
    fresh = state / FRESH_JOURNAL
    with fresh.open("w", encoding="utf-8") as stream:
        json.dump(step, stream)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(state / JOURNAL)
    _sync(state)


def _plain(step: Step) -> dict[str, Any]:
    return {**asdict(step), "added": list(step.added)}


def _sync_tree(folder: Path) -> None:
    """Make the staged files durable before a rename makes them visible."""
    for path in (*folder.rglob("*"), folder):
        if path.is_dir() or path.is_file():
            _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
