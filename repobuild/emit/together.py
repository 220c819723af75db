"""The step of several models into the repository at once: an ensemble and the models it is made of.

Steps come first and the ensemble last. A step that serves a version already gets the new one beside it, and
for a while a configuration that serves both, so that the old ensemble finds what it names until its own
config.pbtxt, or its folder, is renamed in. That last rename decides: before it, the next command undoes what
was done, after it, it finishes.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from repobuild.emit import warmup
from repobuild.emit.config import CONFIG_FILE, read_config, sealed
from repobuild.emit.model import Emission
from repobuild.emit.surroundings import staged_files
from repobuild.emit.versions import look
from repobuild.triton import format_config

BEFORE, BOTH = "before", "both"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A staged model that goes into the repository.

    Attributes:
        model: Model name.
        emission: The staged model.
        new_version: Whether its version is to be added.
    """

    model: str
    emission: Emission
    new_version: bool


@dataclass(frozen=True, slots=True)
class Move:
    """One rename.

    Attributes:
        how: ``add`` what was not there, or ``swap`` a file for another.
        source: Where from, relative to the build's staging folder.
        target: Where to, relative to the repository.
    """

    how: Literal["add", "swap"]
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Together:
    """What the journal holds.

    Attributes:
        token: The build's staging folder.
        moves: Up to the one that decides, which is the last.
        after: What follows it.
        versions: Version of each model whose records follow, too.
    """

    token: str
    moves: tuple[Move, ...]
    after: tuple[Move, ...]
    versions: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form, which :func:`from_dict` reads back."""
        return {"kind": "together", **asdict(self)}


def from_dict(data: dict[str, Any]) -> Together:
    """What :meth:`Together.to_dict` wrote."""
    return Together(
        data["token"],
        tuple(Move(**m) for m in data["moves"]),
        tuple(Move(**m) for m in data["after"]),
        dict(data["versions"]),
    )


def prepare(staging: Path, repository: Path, arrivals: Sequence[Arrival], token: str) -> Together:
    """Plan the renames, and write the configurations that they need into the staging folder.

    Args:
        staging: The build's staging folder.
        repository: The repository.
        arrivals: Models that change, the ensemble last.
        token: Name of the staging folder.

    Raises:
        OSError: The file system refuses.
    """
    moves: list[Move] = []
    after: list[Move] = []
    for index, arrival in enumerate(arrivals):
        last = index == len(arrivals) - 1
        now, later = _moves(staging, repository, arrival, last=last)
        moves.extend(now)
        after.extend(later)
    return Together(token, tuple(moves), tuple(after), {a.model: a.emission.version for a in arrivals})


def _moves(staging: Path, repository: Path, arrival: Arrival, *, last: bool) -> tuple[list[Move], list[Move]]:
    model, emission = arrival.model, arrival.emission
    staged, home = staging / "repository" / model, repository / model
    if not home.exists():
        return [Move("add", f"repository/{model}", model)], []
    moves = []
    for file in staged_files(staged):
        place = file.relative_to(staged).as_posix()
        if not (home / place).is_file() or (home / place).read_bytes() != file.read_bytes():
            moves.append(Move("add", f"repository/{model}/{place}", f"{model}/{place}"))
    if arrival.new_version:
        version = str(emission.version)
        moves.append(Move("add", f"repository/{model}/{version}", f"{model}/{version}"))
    config = f"{model}/{CONFIG_FILE}"
    if not (home / CONFIG_FILE).exists():
        return [*moves, Move("add", f"repository/{config}", config)], []
    same = (home / CONFIG_FILE).read_bytes() == (staged / CONFIG_FILE).read_bytes()
    if same and not last:
        return moves, []
    (staging / BEFORE / model).mkdir(parents=True)
    shutil.copyfile(home / CONFIG_FILE, staging / BEFORE / config)
    final = Move("swap", f"repository/{config}", config)
    both = _serving_both(home, emission) if arrival.new_version and not last else None
    if both is None:
        return [*moves, final], []
    (staging / BOTH / model).mkdir(parents=True)
    (staging / BOTH / config).write_text(both, encoding="utf-8")
    return [*moves, Move("swap", f"{BOTH}/{config}", config)], [final]


def _serving_both(home: Path, emission: Emission) -> str | None:
    """The new configuration serving the present versions, too; ``None`` where nothing is served."""
    read = read_config(home)
    assert read is not None
    present = [v for v in read[1].version_policy.specific.versions if (home / str(v)).is_dir()]
    if not present:
        return None
    both = type(emission.config)()
    both.CopyFrom(emission.config)
    both.version_policy.specific.versions[:] = sorted({*present, emission.version})
    return sealed(format_config(both))


def decided(step: Together, staging: Path) -> bool:
    """Whether the last of the moves has been made."""
    return not (staging / step.moves[-1].source).exists()


def forward(step: Together, staging: Path, repository: Path) -> None:
    """Make the moves, the deciding one last.

    Raises:
        OSError: The file system refuses.
    """
    for move in step.moves:
        target = repository / move.target
        target.parent.mkdir(exist_ok=True)
        if move.how == "add":
            (staging / move.source).rename(target)
        else:
            (staging / move.source).replace(target)


def finish(step: Together, staging: Path, repository: Path, state: Path) -> tuple[Path, ...]:
    """Everything after the deciding move; may be run again. Gives the folders whose entries changed.

    Raises:
        OSError: The file system refuses.
    """
    for move in step.after:
        if (staging / move.source).exists():
            (staging / move.source).replace(repository / move.target)
    changed = [repository]
    for model, version in step.versions.items():
        home = state / model / str(version)
        home.mkdir(parents=True, exist_ok=True)
        meta = staging / "meta" / model
        for file in sorted(meta.iterdir()) if meta.is_dir() else ():
            file.replace(home / file.name)
        changed.extend((repository / model, home))
    return tuple(changed)


def undo(step: Together, staging: Path, repository: Path, made: bool) -> None:
    """Bring the repository back to what it was; may be run again.

    Args:
        step: What was begun.
        staging: The build's staging folder.
        repository: The repository.
        made: Whether the repository itself may go if nothing is left in it.

    Raises:
        OSError: The file system refuses.
    """
    for move in reversed(step.moves):
        if (staging / move.source).exists():
            continue
        target = repository / move.target
        if move.how == "swap":
            spare = staging / BEFORE / f"{move.target}.back"
            shutil.copyfile(staging / BEFORE / move.target, spare)
            spare.replace(target)
        elif target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
    for model in step.versions:
        with contextlib.suppress(OSError):
            (repository / model / warmup.FOLDER).rmdir()
    if made:
        with contextlib.suppress(OSError):
            repository.rmdir()
    shutil.rmtree(staging, ignore_errors=True)


def stale(repository: Path, arrivals: Sequence[Arrival]) -> str | None:
    """A model that is no longer as the build looked at it."""
    for arrival in arrivals:
        now, seen = look(repository, arrival.model), arrival.emission.existing
        if now != seen:
            return arrival.model
    return None
