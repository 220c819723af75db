"""Scans the pickles inside archives: files of torch.save, npz and npy with object arrays, zips in zips.

Like the scan of a single pickle it runs nothing, and all members of a file share what it may spend.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from repobuild.sources.containers import HEAD_BYTES
from repobuild.sources.content import TORCH_MAGIC, is_pickle_head, kind_of_head
from repobuild.sources.opcodes.machine import Budget
from repobuild.sources.pickle_scan import PickleScan, scan_pickle, whole_budget
from repobuild.sources.streams import CountingStream, StreamEnded, StreamTooLarge
from repobuild.sources.zips import MAGIC, Zip, ZipUnreadable

MAX_NESTING = 3
"""Archives inside archives that are looked into."""

MAX_INNER_BYTES = 1 << 26
"""Bytes of an inner archive (64 MiB)."""

MAX_LOOKED_AT = 1 << 30
"""Decompressed bytes of all members that are looked at (1 GiB)."""

MAX_MEMBERS = 20_000
"""Members of all archives that are looked at."""

OLD_TORCH_PICKLES = 5
"""torch.save before 1.6 wrote five pickles in a row: its magic number, a protocol number, facts of the
system, the object, and the keys of the storages (torch/serialization.py, _legacy_save)."""

PICKLE_NAMES = (".pkl", ".pickle", ".pck", ".joblib")
OBJECT_TYPE = re.compile(rb"\|?O\d*['\"]")
MAX_NPY_HEADER = 1 << 16


@dataclass(frozen=True, slots=True)
class ArchiveScan:
    """What the pickles of an archive would do when loaded.

    Attributes:
        pickles: The scan of each pickle, by the names of the members that lead to it, joined by ``!``; the
            name is empty where the file itself is a row of pickles.
        troubles: What could not be looked into, or is wrong with the archive, in words.
    """

    pickles: Mapping[str, PickleScan]
    troubles: tuple[str, ...]


@dataclass(slots=True)
class _Looker:
    budget: Budget = field(default_factory=whole_budget)
    left: int = MAX_LOOKED_AT
    members: int = MAX_MEMBERS
    pickles: dict[str, PickleScan] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    def look(self, stream: BinaryIO, name: str, depth: int) -> None:
        """Look into an archive at the start of a seekable stream."""
        if depth > MAX_NESTING:
            self.troubles.append(f"{name}: archives are nested more than {MAX_NESTING} deep")
            return
        try:
            with Zip(stream) as archive:
                self.troubles.extend(f"{_inside(name)}{trouble}" for trouble in archive.troubles)
                for member in archive.members:
                    self.members -= 1
                    if self.members < 0:
                        self.troubles.append(f"only {MAX_MEMBERS} members were looked at")
                        return
                    if not member.trouble:
                        self._member(archive, member.name, f"{_inside(name)}{member.name}", depth)
        except ZipUnreadable as problem:
            self.troubles.append(f"{_inside(name)}{problem}")

    def _member(self, archive: Zip, name: str, shown: str, depth: int) -> None:
        head = archive.head(name, HEAD_BYTES)
        try:
            if head.startswith(MAGIC):
                self._inner_archive(archive, name, shown, depth)
            elif kind_of_head(head) == "npy":
                with archive.open(name) as stream:
                    self.npy(stream, shown)
            elif is_pickle_head(head) or name.endswith(PICKLE_NAMES):
                with archive.open(name) as stream:
                    self.row(stream, shown, head)
        except ZipUnreadable as problem:
            self.troubles.append(f"{shown}: {problem}")

    def _inner_archive(self, archive: Zip, name: str, shown: str, depth: int) -> None:
        with archive.open(name) as stream, tempfile.SpooledTemporaryFile(max_size=1 << 23) as copy:
            size = 0
            while piece := stream.read(1 << 18):
                size += len(piece)
                self.left -= len(piece)
                if size > MAX_INNER_BYTES or self.left < 0:
                    self.troubles.append(f"{shown}: this inner archive is too large to be looked into")
                    return
                copy.write(piece)
            self.look(copy, shown, depth + 1)  # type: ignore[arg-type]

    def row(self, stream: BinaryIO, shown: str, head: bytes) -> None:
        """Scan one pickle, or the row of them that old torch files are."""
        counting = self._counting(stream)
        old = head.startswith(TORCH_MAGIC)
        for number in range(OLD_TORCH_PICKLES if old else 1):
            found = self._scan(counting)
            self._keep(f"{shown} (pickle {number + 1})".strip() if old else shown, found)
            if not found.complete:
                break

    def npy(self, stream: BinaryIO, shown: str) -> None:
        """Scan the pickle that follows an npy header whose type holds objects (numpy.lib.format)."""
        counting = self._counting(stream)
        try:
            start = counting.read(8)
            length = int.from_bytes(counting.read(2 if start[6] == 1 else 4), "little")
            if length > MAX_NPY_HEADER:
                self.troubles.append(f"{shown}: the header of the array takes {length} bytes")
                return
            header = counting.read(length)
        except (StreamEnded, StreamTooLarge, OSError):
            self.troubles.append(f"{shown}: the array is cut off in its header")
            return
        if OBJECT_TYPE.search(header):
            self._keep(shown, self._scan(counting))

    def _counting(self, stream: BinaryIO) -> CountingStream:
        return CountingStream(stream, max(self.left, 0))

    def _scan(self, counting: CountingStream) -> PickleScan:
        before = counting.tell()
        found = scan_pickle(counting, self.budget)
        self.left -= counting.tell() - before
        return found

    def _keep(self, name: str, found: PickleScan) -> None:
        self.pickles[name] = found
        if not found.complete:
            self.troubles.append(f"{_inside(name)}the scan could not follow it to its end: {found.trouble}")


def scan_archive(path: Path) -> ArchiveScan:
    """Scan every pickle in a zip archive, an old torch file or an npy file.

    Raises:
        OSError: It cannot be read.
    """
    looker = _Looker()
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
        stream.seek(0)
        if head.startswith(MAGIC):
            looker.look(stream, "", 0)
        elif kind_of_head(head) == "npy":
            looker.npy(stream, "")
        else:
            looker.row(stream, "", head)
    return ArchiveScan(looker.pickles, tuple(looker.troubles))


def _inside(name: str) -> str:
    return f"{name}!" if name else ""


_TORCH_TYPES = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 short int long half float double float16 float32"
    " float64 bfloat16 complex32 complex64 complex128 quint8 qint8 qint32 float8_e4m3fn float8_e5m2 Size"
    " device Tensor"
).replace(" ", "|")
_HARMLESS = re.compile(
    r"torch\._utils\._rebuild_\w+|torch\.jit\._pickle\.(?:build_\w+list|restore_type_tag)|torch\.(?:storage\.)?\w*Storage|torch\.nn\.parameter\.Parameter"
    r"|torch\._tensor\._rebuild_from_type_v2|torch\.serialization\._get_layout|torch\._C\.layout"
    r"|collections\.(?:OrderedDict|Counter|defaultdict)|_codecs\.encode"
    r"|(?:builtins|__builtin__)\.(?:set|frozenset|bytearray|complex)"
    rf"|torch\.(?:{_TORCH_TYPES})"
)


def beyond_tensors(names: tuple[str, ...]) -> Iterator[str]:
    """Those of some imported names that files of tensors alone do not have.

    What remains is roughly what ``torch.load(weights_only=True)`` refuses
    (torch/_weights_only_unpickler.py, _get_allowed_globals).
    """
    return (name for name in names if not _HARMLESS.fullmatch(name))
