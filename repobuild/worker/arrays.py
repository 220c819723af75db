"""Batches in npz files that hold no pickles: text is stored as fixed-width unicode."""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

from repobuild.errors import from_oserror
from repobuild.tensors import Array, Batch

NAMES = "names.json"
EPOCH = (1980, 1, 1, 0, 0, 0)


def save_batch(path: Path, batch: Batch) -> None:
    """Write named arrays so that equal batches give equal bytes.

    The zip holds ``arr_<i>.npy`` and ``names.json``, ``{name: "arr_<i>"}``, so that names may hold any
    character. Text (``object`` or bytes) becomes unicode.

    Raises:
        OSError: The file cannot be written.
        ValueError: An ``object`` array holds something other than text.
    """
    import numpy as np

    names = {name: f"arr_{index}" for index, name in enumerate(batch)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in batch.items():
            with archive.open(zipfile.ZipInfo(f"{names[name]}.npy", EPOCH), "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, _plain(array), allow_pickle=False)
        archive.writestr(zipfile.ZipInfo(NAMES, EPOCH), json.dumps(names))


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Name an error of the system while this package writes a file of its own.

    Raises:
        EnvironmentLacking: The disk is full, or the file may not be written.
    """
    try:
        yield
    except OSError as problem:
        raise from_oserror(problem, f"writing {what}") from problem


def load_batch(path: Path) -> dict[str, Array]:
    """Read what :func:`save_batch` wrote; text comes back as unicode arrays.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not such a file.
    """
    return dict(_members(path))


def _members(path: Path) -> Iterator[tuple[str, Array]]:
    import numpy as np

    with zipfile.ZipFile(path) as archive:
        names = json.loads(archive.read(NAMES))
        for name, member in names.items():
            with archive.open(f"{member}.npy") as stream:
                yield name, np.lib.format.read_array(stream, allow_pickle=False)


def _plain(array: Array) -> Array:
    import numpy as np

    if array.dtype.kind == "O":
        strangers = {type(v).__name__ for v in array.ravel() if not isinstance(v, str | bytes)}
        if strangers:
            raise ValueError(
                f"only text can be stored from an object array, not {', '.join(sorted(strangers))}"
            )
        texts = [v.decode("utf-8") if isinstance(v, bytes) else v for v in array.ravel()]
        return np.array(texts, dtype=np.str_).reshape(array.shape)
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8")
    return np.ascontiguousarray(array) if array.ndim else array
