"""Opens a model file's byte stream, whatever it is compressed with, and names files that are no model."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from repobuild.errors import Evidence, InputInvalid, from_oserror

MAX_STREAM_BYTES = 1 << 36
"""Bytes of one decompressed pickle stream that are read before the file is taken for a decompression bomb."""

HEAD_BYTES = 512


class StreamTooLarge(Exception):
    """Raised by a :class:`CountingStream` past its limit."""


class CountingStream:
    """A read-only stream that refuses to hand out more than a limit.

    Bytes come in pieces of at most 1 MiB, so that a length field in a hostile file cannot make the reader
    allocate more than the file holds.
    """

    def __init__(self, inner: BinaryIO, limit: int) -> None:
        self._inner = inner
        self._limit = limit
        self._left = limit

    def tell(self) -> int:
        """Bytes handed out so far."""
        return self._limit - self._left

    def read(self, size: int = -1) -> bytes:
        """Read at most ``size`` bytes in pieces of at most 1 MiB.

        Raises:
            StreamTooLarge: The limit is passed.
        """
        pieces = []
        want = self._left + 1 if size < 0 else size
        while want > 0:
            piece = self._inner.read(min(want, 1 << 20))
            if not piece:
                break
            self._left -= len(piece)
            if self._left < 0:
                raise StreamTooLarge
            pieces.append(piece)
            want -= len(piece)
        return b"".join(pieces)

    def readline(self) -> bytes:
        """Read a line of at most 64 KiB, the longest that a pickle opcode may hold here."""
        line = self._inner.readline(1 << 16)
        self._left -= len(line)
        if self._left < 0:
            raise StreamTooLarge
        return line

    def skip(self, size: int) -> bool:
        """Read and drop ``size`` bytes; false when the stream ends before."""
        while size > 0:
            piece = self.read(min(size, 1 << 20))
            if not piece:
                return False
            size -= len(piece)
        return True


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


def _zlib(stream: BinaryIO) -> BinaryIO:
    return io.BufferedReader(_ZlibReader(stream))


def _gzip(stream: BinaryIO) -> BinaryIO:
    return gzip.GzipFile(fileobj=stream)  # type: ignore[return-value]


def _bz2(stream: BinaryIO) -> BinaryIO:
    return bz2.BZ2File(stream)  # type: ignore[return-value]


def _lzma(stream: BinaryIO) -> BinaryIO:
    return lzma.LZMAFile(stream)  # type: ignore[return-value]


COMPRESSIONS: tuple[tuple[bytes, str, Callable[[BinaryIO], BinaryIO]], ...] = (
    (b"\x1f\x8b", "gzip", _gzip),
    (b"BZ", "bzip2", _bz2),
    (b"\xfd7zXZ", "xz", _lzma),
    (b"\x5d\x00", "lzma", _lzma),
    (b"x\x01", "zlib", _zlib),
    (b"x\x5e", "zlib", _zlib),
    (b"x\x9c", "zlib", _zlib),
    (b"x\xda", "zlib", _zlib),
)
"""First bytes, name and opener of the compressions that joblib writes without further packages."""


def compression_of(head: bytes) -> str | None:
    """The name of a file's compression by its first bytes, ``None`` when it has none that is known."""
    return next((name for magic, name, _ in COMPRESSIONS if head.startswith(magic)), None)


def open_stream(stream: BinaryIO, limit: int = MAX_STREAM_BYTES) -> CountingStream:
    """The decompressed bytes of an open model file.

    Args:
        stream: The file, at its start.
        limit: Decompressed bytes that may be read.
    """
    head = stream.read(HEAD_BYTES)
    stream.seek(0)
    opener = next((opener for magic, _, opener in COMPRESSIONS if head.startswith(magic)), None)
    return CountingStream(opener(stream) if opener else stream, limit)


def read_head(path: Path, given: str) -> bytes:
    """The first bytes of a model file.

    Raises:
        InputInvalid: It is missing, a folder, or empty.
        EnvironmentLacking: It cannot be read.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
    except FileNotFoundError:
        raise InputInvalid(
            "model-missing",
            f"there is no model file {given}",
            (Evidence("no such file", file=given),),
            "paths in a recipe are relative to the recipe's own folder; was the model trained and saved?",
        ) from None
    except IsADirectoryError:
        raise InputInvalid(
            "model-is-folder",
            f"{given} is a folder, not a model file",
            (Evidence("is a folder", file=given),),
            "name the file itself",
        ) from None
    except OSError as problem:
        raise from_oserror(problem, "reading the model file") from problem
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
