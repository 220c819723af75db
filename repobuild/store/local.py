"""A store in a local folder."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from repobuild.store.interface import KeyTaken

_KEY = re.compile(r"(?!\.)[A-Za-z0-9._-]+(/(?!\.)[A-Za-z0-9._-]+)*")
_SCRATCH = ".scratch"


class LocalStore:
    """One file an object.

    Args:
        root: The folder; made when the first object is written.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def get(self, key: str) -> bytes:
        """See :meth:`repobuild.store.interface.Store.get`."""
        try:
            return self._path(key).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise KeyError(key) from None

    def put_if_absent(self, key: str, data: bytes) -> None:
        """See :meth:`repobuild.store.interface.Store.put_if_absent`.

        The bytes go to a scratch file, which is then linked to its name: linking fails when the name exists.
        """
        path = self._path(key)
        scratch = self._root / _SCRATCH
        scratch.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = scratch / secrets.token_hex(8)
        try:
            with fresh.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.link(fresh, path)
        except FileExistsError:
            raise KeyTaken(key) from None
        finally:
            fresh.unlink(missing_ok=True)

    def list(self, prefix: str) -> Iterator[str]:
        """See :meth:`repobuild.store.interface.Store.list`."""
        files = (p.relative_to(self._root).as_posix() for p in self._root.rglob("*") if p.is_file())
        yield from sorted(k for k in files if k.startswith(prefix) and not k.startswith(f"{_SCRATCH}/"))

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(
                f"'{key}' is not a key: parts of letters, digits, '.', '_', '-', none beginning with '.'"
            )
        return self._root / key
