"""Looks at files nobody vouched for: never out of the repository, never a pipe, never more than asked for."""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MOST_ENTRIES = 100_000
"""Files and folders that are looked at in one repository."""
DEEPEST = 12
"""Folders below the repository that are entered."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder of the repository.

    Attributes:
        path: Where it is.
        name: Its own name.
        relative: Path below the repository with ``/``.
        kind: ``file``, ``folder``, ``broken`` (a link that leads nowhere), ``outside`` (a link out of the
            repository), ``special`` (pipe, socket, device), ``hidden`` (cannot be looked at).
        size: Bytes of a file, 0 otherwise.
        link: Whether it is a symbolic link.
    """

    path: Path
    name: str
    relative: str
    kind: str
    size: int = 0
    link: bool = False

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file inside the repository."""
        return self.kind == "file"

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder inside the repository."""
        return self.kind == "folder"


class Tree:
    """The files below a repository.

    Args:
        root: The repository.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.real = Path(os.path.realpath(root))
        self.looked_at = 0

    def entry(self, *parts: str) -> Entry | None:
        """The entry at a path below the root; ``None`` if nothing is there.

        A name with a separator or ``..`` in it counts as nothing.
        """
        for part in parts:
            if part in ("", ".", "..") or "/" in part or "\x00" in part:
                return None
        path = self.root.joinpath(*parts)
        try:
            os.lstat(path)
        except (OSError, ValueError):
            return None
        return self._entry(path, "/".join(parts))

    def children(self, folder: Entry | None) -> list[Entry]:
        """What a folder holds, by name; nothing if it cannot be read. ``None`` is the root."""
        path = self.root if folder is None else folder.path
        prefix = "" if folder is None else f"{folder.relative}/"
        try:
            with os.scandir(path) as listing:
                found = [
                    self._entry(path / item.name, prefix + item.name)
                    for item in itertools.islice(listing, MOST_ENTRIES)
                ]
        except OSError:
            return []
        return sorted(found, key=lambda e: e.name)

    def walk(self, folder: Entry | None, depth: int = 0) -> Iterator[Entry]:
        """Everything below a folder, links to folders named but not entered."""
        for child in self.children(folder):
            self.looked_at += 1
            if self.looked_at > MOST_ENTRIES:
                return
            yield child
            if child.is_folder and not child.link and depth < DEEPEST:
                yield from self.walk(child, depth + 1)

    def _entry(self, path: Path, relative: str) -> Entry:
        name = path.name
        try:
            here = os.lstat(path)
            link = stat.S_ISLNK(here.st_mode)
            if link:
                target = Path(os.path.realpath(path))
                if target != self.real and self.real not in target.parents:
                    return Entry(path, name, relative, "outside" if target.exists() else "broken", link=True)
                here = path.stat()
        except FileNotFoundError:
            return Entry(path, name, relative, "broken", link=True)
        except OSError:
            # A link that leads to itself, or a folder that may not be searched.
            return Entry(path, name, relative, "broken" if path.is_symlink() else "hidden", link=True)
        if stat.S_ISDIR(here.st_mode):
            return Entry(path, name, relative, "folder", link=link)
        if stat.S_ISREG(here.st_mode):
            return Entry(path, name, relative, "file", here.st_size, link)
        return Entry(path, name, relative, "special", link=link)


def open_file(entry: Entry) -> BinaryIO:
    """Open a regular file of the repository for reading.

    Raises:
        OSError: It cannot be opened, or is no regular file any more.
    """
    handle = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file", entry.relative)
    return os.fdopen(handle, "rb")


def read_start(entry: Entry, size: int) -> bytes | None:
    """The first bytes of a file; ``None`` if it cannot be read."""
    try:
        with open_file(entry) as file:
            return file.read(size)
    except OSError:
        return None


def read_whole(entry: Entry, limit: int) -> bytes | None:
    """The bytes of a file of at most ``limit`` bytes; ``None`` if it is larger or cannot be read."""
    data = read_start(entry, limit + 1)
    return None if data is None or len(data) > limit else data
