"""Whether the files of a model have changed: names, sizes and times of modification, not contents."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from repobuild_serve.repository import is_folder, is_version_name

_IGNORED = frozenset({"__pycache__"})
_CONFIGS = frozenset({"config.pbtxt", "configs"})
_DEEPEST = 40

_Entry = tuple[str, int, int]
"""Path below the model folder, size in bytes (-1 for a folder), time of modification in ns."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The state of a model folder; two that are equal mean that nothing has changed.

    Attributes:
        config: Entries of the config files.
        versions: Entries of each version folder, by version number.
        shared: Everything else, which every version may use.
    """

    config: tuple[_Entry, ...]
    versions: Mapping[int, tuple[_Entry, ...]]
    shared: tuple[_Entry, ...]

    def of_version(self, number: int) -> tuple[object, ...]:
        """What the files of one version, without the config, depend on."""
        return self.versions.get(number), self.shared


def fingerprint(folder: Path) -> Fingerprint:
    """Look at every file below a model folder; links are followed.

    The times of folders do not count, since byte code that Python writes would change them.

    Raises:
        OSError: The folder cannot be read, or changes while it is read.
    """
    config: list[_Entry] = []
    versions: dict[int, tuple[_Entry, ...]] = {}
    shared: list[_Entry] = []
    with os.scandir(folder) as entries:
        found = sorted((entry for entry in entries if entry.name not in _IGNORED), key=lambda e: e.name)
    for entry in found:
        inside = tuple(_walk(entry, entry.name, 0))
        if entry.name in _CONFIGS:
            config += inside
        elif is_version_name(entry.name) and is_folder(entry):
            versions[int(entry.name)] = inside
        else:
            shared += inside
    return Fingerprint(tuple(config), versions, tuple(shared))


def _walk(entry: os.DirEntry[str], path: str, depth: int) -> Iterator[_Entry]:
    try:
        status = entry.stat()
    except OSError:
        # A link to nowhere or to itself, or gone a moment ago.
        yield (path, -2, 0)
        return
    if not is_folder(entry):
        yield (path, status.st_size, status.st_mtime_ns)
        return
    yield (path, -1, 0)
    if depth >= _DEEPEST:
        raise OSError(f"{entry.path} is nested too deeply; does a link lead back up?")
    with os.scandir(entry.path) as entries:
        found = sorted((item for item in entries if item.name not in _IGNORED), key=lambda e: e.name)
    for item in found:
        yield from _walk(item, f"{path}/{item.name}", depth + 1)
