"""Looks into zip archives that nobody vouched for: bounded, and suspicious of what they say of themselves."""

from __future__ import annotations

import io
import itertools
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, BinaryIO, Self

MAX_MEMBERS = 100_000
MAX_DIRECTORY_BYTES = 1 << 26
"""Bytes of the list of members (64 MiB); a member takes about 100."""

MAGIC = b"PK\x03\x04"
END, END_SIZE = b"PK\x05\x06", 22
LOCATOR, LOCATOR_SIZE = b"PK\x06\x07", 20
END64, END64_SIZE = b"PK\x06\x06", 56
MAX_COMMENT = 1 << 16
LOCAL_HEADER_SIZE = 30
SIZES_FOLLOW_IN_ZIP64 = 0xFFFFFFFF
LOOKED_INTO = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}


class ZipUnreadable(Exception):
    """Raised for an archive that is damaged, or too large a list of members."""


@dataclass(frozen=True, slots=True)
class Member:
    """An entry of an archive, as its central directory has it.

    Attributes:
        name: Its name.
        size: Bytes that it is said to have, decompressed.
        trouble: Why it is not to be opened; empty where it may be.
    """

    name: str
    size: int
    trouble: str = ""


class Zip:
    """An open archive.

    Args:
        stream: Its bytes; seekable.

    Attributes:
        members: What it says that it holds.
        troubles: What is wrong with it as a whole or with some members, in words; empty for honest archives.

    Raises:
        ZipUnreadable: It cannot be opened.
    """

    def __init__(self, stream: BinaryIO) -> None:
        size = stream.seek(0, io.SEEK_END)
        _refuse_large_directory(stream, size)
        try:
            self._archive = zipfile.ZipFile(stream)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, struct.error) as problem:
            raise ZipUnreadable(f"the zip archive is cut off or damaged: {problem}") from None
        entries = self._archive.infolist()
        if len(entries) > MAX_MEMBERS:
            raise ZipUnreadable(f"the zip archive has more than {MAX_MEMBERS} members")
        self.members = tuple(Member(e.filename, e.file_size, _trouble(e)) for e in entries)
        self.troubles = tuple(_troubles(entries, self.members, size))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._archive.close()

    def names(self) -> frozenset[str]:
        """The names of all members."""
        return frozenset(m.name for m in self.members)

    def size_of(self, name: str) -> int | None:
        """Bytes that a member is said to have, ``None`` where there is no such member."""
        return next((m.size for m in self.members if m.name == name), None)

    def open(self, name: str) -> BinaryIO:
        """A member's decompressed bytes, the last one of that name, as every reader of zips has it.

        Raises:
            ZipUnreadable: It cannot be opened.
        """
        try:
            return _Honest(self._archive.open(self._archive.getinfo(name)))  # type: ignore[return-value]
        except (
            zipfile.BadZipFile,
            NotImplementedError,
            RuntimeError,
            OSError,
            KeyError,
            ValueError,
        ) as problem:
            raise ZipUnreadable(f"the member cannot be opened: {problem}") from None

    def head(self, name: str, size: int) -> bytes:
        """The first bytes of a member; none where it cannot be read."""
        try:
            with self.open(name) as stream:
                return stream.read(size)
        except (ZipUnreadable, OSError, zlib.error, EOFError):
            return b""


class _Honest(io.RawIOBase):
    """A member's stream whose own errors are those of a damaged stream."""

    def __init__(self, inner: IO[bytes]) -> None:
        super().__init__()
        self._inner = inner

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        try:
            return self._inner.read(size)
        except zipfile.BadZipFile as problem:
            raise OSError(str(problem)) from None

    def close(self) -> None:
        self._inner.close()
        super().close()


def _key(entry: zipfile.ZipInfo) -> tuple[int, str]:
    return entry.header_offset, entry.filename


def _refuse_large_directory(stream: BinaryIO, size: int) -> None:
    """:mod:`zipfile` reads the list of members in one piece, of whatever length the archive says."""
    start = max(0, size - MAX_COMMENT - END_SIZE - LOCATOR_SIZE)
    stream.seek(start)
    tail = stream.read(size - start)
    at = tail.rfind(END)
    if at < 0 or at + END_SIZE > len(tail):
        raise ZipUnreadable("the zip archive is cut off: it has no list of members at its end")
    length = struct.unpack_from("<I", tail, at + 12)[0]
    before = at - LOCATOR_SIZE
    if before >= 0 and tail[before : before + 4] == LOCATOR:
        end64 = struct.unpack_from("<Q", tail, before + 8)[0]
        if end64 + END64_SIZE <= size:
            stream.seek(end64)
            record = stream.read(END64_SIZE)
            if record[:4] == END64:
                length = struct.unpack_from("<Q", record, 40)[0]
    if length > MAX_DIRECTORY_BYTES:
        raise ZipUnreadable(f"the zip archive's list of members takes {length} bytes")


def _trouble(entry: zipfile.ZipInfo) -> str:
    name = entry.filename
    parts = name.replace("\\", "/").split("/")
    if ".." in parts or name.startswith(("/", "\\")) or name[1:2] == ":":
        return "its name leads out of the archive's folder"
    if entry.flag_bits & 1:
        return "it is encrypted"
    if entry.compress_type not in LOOKED_INTO:
        return f"it is compressed by method {entry.compress_type}, which is not looked into"
    return ""


def _troubles(entries: list[zipfile.ZipInfo], members: tuple[Member, ...], size: int) -> Iterator[str]:
    for member in members:
        if member.trouble:
            yield f"{member.name}: {member.trouble}"
    ordered = sorted(entries, key=_key)
    for entry, following in itertools.pairwise(ordered):
        if entry.header_offset + LOCAL_HEADER_SIZE + entry.compress_size > following.header_offset:
            yield f"{entry.filename}: it overlaps {following.filename}"
    if ordered and ordered[-1].header_offset + LOCAL_HEADER_SIZE + ordered[-1].compress_size > size:
        yield f"{ordered[-1].filename}: it is said to reach past the end of the archive"
    seen: set[str] = set()
    for entry in entries:
        if entry.filename in seen:
            yield f"{entry.filename}: there are several members of this name"
        seen.add(entry.filename)
