"""Many requests, or many answers, in one npz file between the processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from repobuild.tensors import Array, Batch
from repobuild.worker.arrays import load_batch, save_batch

COUNT = "count"


def save_many(path: Path, batches: Sequence[Batch | None]) -> None:
    """Write several batches; ``None`` comes back as ``None``.

    Raises:
        OSError: The file cannot be written.
        ValueError: An ``object`` array holds something other than text.
    """
    import numpy as np

    present = [i for i, batch in enumerate(batches) if batch is not None]
    flat: dict[str, Array] = {
        COUNT: np.array([len(batches)], dtype=np.int64),
        "present": np.array(present, dtype=np.int64),
    }
    for index, batch in enumerate(batches):
        flat.update({f"{index}/{name}": array for name, array in (batch or {}).items()})
    save_batch(path, flat)


def load_many(path: Path) -> list[dict[str, Array] | None]:
    """Read what :func:`save_many` wrote.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not such a file.
        LookupError: A part of it is missing.
    """
    flat = load_batch(path)
    present = {int(i) for i in flat["present"]}
    found: list[dict[str, Array] | None] = [{} if i in present else None for i in range(int(flat[COUNT][0]))]
    for key, array in flat.items():
        index, slash, name = key.partition("/")
        if slash:
            batch = found[int(index)]
            if batch is None:
                raise ValueError(f"{key} belongs to an absent batch")
            batch[name] = array
    return found
