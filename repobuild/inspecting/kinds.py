"""What kind of model a file is, by its first bytes rather than by its name."""

from __future__ import annotations

import zipfile
from pathlib import Path

MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"ftrt", "tensorrt-engine"),
    (b"ptrt", "tensorrt-engine"),
    (b"\x89HDF\r\n\x1a\n", "hdf5"),
    (b"CBM1", "catboost"),
    (b"GGUF", "gguf"),
    (b"\x93NUMPY", "npy"),
    (b"PAR1", "parquet"),
    (b"tree\nversion=", "lightgbm"),
)
"""First bytes of formats and their names."""

ZIP = b"PK\x03\x04"


def kind_of(path: Path, head: bytes) -> str | None:
    """The kind of a model file, ``None`` when its bytes do not tell.

    Args:
        path: The file.
        head: Its first bytes.
    """
    for magic, kind in MAGIC:
        if head.startswith(magic):
            return kind
    if head.startswith(ZIP):
        return zip_kind(zip_names(path))
    if len(head) > 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size:
        return "safetensors"
    if head.lstrip()[:1] == b"{" and b'"learner"' in head:
        return "xgboost-json"
    if head.startswith(b"{L\x00\x00\x00\x00\x00\x00\x00\x07learner"):
        return "xgboost-ubj"
    return None


def zip_names(path: Path) -> list[str]:
    """Names of the members of a zip file, none when it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return []


def zip_kind(names: list[str]) -> str:
    """What a zip file is by the names of its members."""
    base = {n.partition("/")[2] for n in names}
    if "schema.json" in names:
        return "skops"
    if any(n.endswith(("models/model.json", "serialized_exported_program.json")) for n in names):
        return "pt2"
    if "constants.pkl" in base and any(n.startswith("code/") for n in base):
        return "torchscript"
    if "data.pkl" in base:
        return "torch"
    if "metadata.json" in names and "config.json" in names:
        return "keras"
    return "npz" if names and all(n.endswith(".npy") for n in names) else "zip"
