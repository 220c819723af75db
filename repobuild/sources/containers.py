"""Opens a model file's byte stream, whatever it is compressed with, and names files that are no model."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from repobuild.errors import Evidence, InputInvalid, from_oserror
from repobuild.sources.streams import CountingStream, StreamUnreadable

MAX_STREAM_BYTES = 1 << 34
"""Bytes of a pickle that is not compressed (16 GiB) that are read before the scan of it is given up."""

MAX_DECOMPRESSED_BYTES = 1 << 32
"""The same for what a compressed file holds (4 GiB); decompressing takes ten times as long as reading."""

MAX_LZMA_MEMORY = 1 << 28
"""Bytes that an xz or lzma stream may ask of its reader; the highest preset, 9, asks for 65 MiB."""

HEAD_BYTES = 512

NOT_FILES: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class _ZlibReader(io.RawIOBase):
    """Streaming reader of a bare zlib stream, which is what joblib's ``compress=3`` writes."""

    def __init__(self, inner: BinaryIO) -> None:
        super().__init__()
        self._inner = inner
        self._machine = zlib.decompressobj()
        self._pending = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = len(buffer)
        while not self._pending:
            if self._machine.eof:
                return 0
            data = self._machine.unconsumed_tail or self._inner.read(1 << 16)
            if not data:
                raise EOFError("compressed stream ended before its end marker")
            self._pending = self._machine.decompress(data, max(size, 1))
        piece, self._pending = self._pending[:size], self._pending[size:]
        buffer[: len(piece)] = piece
        return len(piece)


class _LzmaReader(io.RawIOBase):
    """Streaming reader of xz and lzma that, unlike :class:`lzma.LZMAFile`, bounds the dictionary's memory."""

    def __init__(self, inner: BinaryIO) -> None:
        super().__init__()
        self._inner = inner
        self._machine = lzma.LZMADecompressor(memlimit=MAX_LZMA_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            data = b""
            if self._machine.eof:
                data = self._machine.unused_data or self._inner.read(1 << 16)
                if not data:
                    return 0
                self._machine = lzma.LZMADecompressor(memlimit=MAX_LZMA_MEMORY)
            elif self._machine.needs_input:
                data = self._inner.read(1 << 16)
                if not data:
                    raise EOFError("compressed stream ended before its end marker")
            piece = self._machine.decompress(data, len(buffer))
            if piece:
                buffer[: len(piece)] = piece
                return len(piece)


def _zlib(stream: BinaryIO) -> BinaryIO:
    return io.BufferedReader(_ZlibReader(stream))


def _gzip(stream: BinaryIO) -> BinaryIO:
    return gzip.GzipFile(fileobj=stream)  # type: ignore[return-value]


def _bz2(stream: BinaryIO) -> BinaryIO:
    return bz2.BZ2File(stream)  # type: ignore[return-value]


def _lzma(stream: BinaryIO) -> BinaryIO:
    return io.BufferedReader(_LzmaReader(stream))


class _Unreadable(io.RawIOBase):
    def read(self, size: int = -1, /) -> bytes:
        raise StreamUnreadable


def _unreadable(_: BinaryIO) -> BinaryIO:
    return _Unreadable()  # type: ignore[return-value]


COMPRESSIONS: tuple[tuple[bytes, str, Callable[[BinaryIO], BinaryIO]], ...] = (
    (b"\x1f\x8b", "gzip", _gzip),
    (b"BZ", "bzip2", _bz2),
    (b"\xfd7zXZ", "xz", _lzma),
    (b"\x5d\x00", "lzma", _lzma),
    (b"x\x01", "zlib", _zlib),
    (b"x\x5e", "zlib", _zlib),
    (b"x\x9c", "zlib", _zlib),
    (b"x\xda", "zlib", _zlib),
    (b"\x04\x22\x4d\x18", "lz4", _unreadable),
    (b"ZF", "joblib before 0.10", _unreadable),
)
"""First bytes, name and opener of the compressions that joblib reads; it needs a further package for lz4."""


def compression_of(head: bytes) -> str | None:
    """The name of a file's compression by its first bytes, ``None`` when it has none that is known."""
    return next((name for magic, name, _ in COMPRESSIONS if head.startswith(magic)), None)


def open_stream(stream: BinaryIO, limit: int | None = None) -> CountingStream:
    """The decompressed bytes of an open model file.

    Args:
        stream: The file, at its start.
        limit: Decompressed bytes that may be read; by default one of the two limits above.

    Returns:
        The stream; reading it raises :class:`StreamUnreadable` where only joblib knows the compression.
    """
    head = stream.read(HEAD_BYTES)
    stream.seek(0)
    opener = next((opener for magic, _, opener in COMPRESSIONS if head.startswith(magic)), None)
    if opener is None:
        return CountingStream(stream, MAX_STREAM_BYTES if limit is None else limit)
    return CountingStream(opener(stream), MAX_DECOMPRESSED_BYTES if limit is None else limit)


def read_head(path: Path, given: str) -> bytes:
    """The first bytes of a model file, which is opened only if it is a regular file or a link to one.

    Raises:
        InputInvalid: It is missing, a folder, a pipe or the like, or empty.
        EnvironmentLacking: It cannot be read.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            with path.open("rb") as stream:
                head = stream.read(HEAD_BYTES)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise InputInvalid(
            "model-missing",
            f"there is no model file {given}",
            (Evidence("no such file", file=given),),
            "paths in a recipe are relative to its folder, those on the command line to where you are; was"
            " the model trained and saved?",
        ) from None
    except OSError as problem:
        raise from_oserror(problem, "reading the model file") from problem
    if stat.S_ISDIR(mode):
        raise InputInvalid(
            "model-is-folder",
            f"{given} is a folder, not a model file",
            (Evidence("is a folder", file=given),),
            "name the file itself",
        )
    if not stat.S_ISREG(mode):
        what = next((name for test, name in NOT_FILES if test(mode)), "no regular file")
        raise InputInvalid(
            "model-not-file",
            f"{given} is {what}, not a model file",
            (Evidence(f"is {what}", file=given),),
            "save the model to a regular file and name that",
        )
    if not head:
        raise InputInvalid(
            "model-empty",
            f"the model file {given} is empty",
            (Evidence("0 bytes", file=given),),
            "the training step wrote nothing; save the model again",
        )
    return head


def refuse_strangers(head: bytes, given: str) -> None:
    """Name well-known files that stand where a model was expected.

    Raises:
        InputInvalid: It is a Git LFS pointer or a web page.
    """
    start = head.lstrip()[:64].lower()
    if head.startswith(b"version https://git-lfs"):
        raise InputInvalid(
            "model-lfs-pointer",
            f"{given} is a Git LFS pointer, not the model",
            (Evidence(head.decode("utf-8", "replace").splitlines()[0], file=given, line=1),),
            "run: git lfs pull",
        )
    if start.startswith((b"<!doctype html", b"<html", b"<?xml")):
        raise InputInvalid(
            "model-is-web-page",
            f"{given} is a web page (HTML or XML), not the model",
            (Evidence(head.decode("utf-8", "replace").splitlines()[0][:120], file=given, line=1),),
            "the download failed, perhaps at a log-in page; fetch the file again",
        )
