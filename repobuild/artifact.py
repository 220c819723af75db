"""Files that repobuild makes, and the tools that made them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from repobuild.tensors import Signature

CACHE = "__pycache__"
"""Folder that Python writes beside a model.py when a server imports it."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program or library with the version that was used."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Library:
    """A native library of custom operators.

    Attributes:
        path: A private copy under the file name that the recipe gives.
        digest: sha256 of the file, hexadecimal.
    """

    path: Path
    digest: str

    @property
    def name(self) -> str:
        """Its file name in the recipe."""
        return self.path.name

    @property
    def shipped(self) -> str:
        """Its file name in a model folder, by its content: one that may be in use is never overwritten."""
        return f"{self.path.stem}-{self.digest[:12]}{self.path.suffix}"


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a server can load: one file, and perhaps others beside it.

    Attributes:
        kind: What made it and what loads it: ``onnxruntime``.
        path: The file that is loaded.
        signature: Its tensors.
        digest: sha256 of the file, hexadecimal.
        made_by: The tool that wrote it.
        beside: Further files in the same folder, such as external data.
        libraries: What it takes its custom operators from; no file of a version.
    """

    kind: str
    path: Path
    signature: Signature
    digest: str
    made_by: Tool
    beside: tuple[Path, ...] = ()
    libraries: tuple[Library, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """All its files, the one that is loaded first."""
        return (self.path, *self.beside)

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(path.stat().st_size for path in self.files)


def file_digest(path: Path) -> str:
    """The sha256 of a file's bytes, hexadecimal.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def tree_digests(folder: Path) -> dict[str, str]:
    """``{relative path: sha256}`` of every file below a folder, sorted by path, Python's own caches left out.

    Raises:
        OSError: A file cannot be read.
    """
    files = sorted(p for p in folder.rglob("*") if p.is_file() and CACHE not in p.parts)
    return {p.relative_to(folder).as_posix(): file_digest(p) for p in files}
