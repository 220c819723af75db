"""Tells from a file's content, not from its name, what kind of model it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from repobuild.sources.containers import HEAD_BYTES, compression_of
from repobuild.sources.zips import MAGIC, Zip, ZipUnreadable

TORCH_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The pickle of 0x1950A86A20F9469CFC6C, with which torch.save began before PyTorch 1.6
(torch/serialization.py, MAGIC_NUMBER)."""

PICKLE_PROTOCOLS = range(6)
ONNX_START = re.compile(rb"\x08[\x01-\x7f](?=[\x12\x1a\x22\x28\x32\x3a\x42\x72])")
"""A ModelProto begins with field 1, ir_version, and one of the fields 2 to 8 or 14 follows (onnx.proto)."""

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "pickle": "a pickle, plain or from joblib",
        "skops": "a skops file",
        "torch": "a file of torch.save",
        "torchscript": "a TorchScript archive",
        "pt2": "an exported PyTorch program (pt2)",
        "onnx": "an ONNX model",
        "xgboost": "an XGBoost model",
        "lightgbm": "a LightGBM model",
        "catboost": "a CatBoost model",
        "keras": "a Keras model",
        "safetensors": "a safetensors file: tensors without a model",
        "tflite": "a TensorFlow Lite model",
        "gguf": "a GGUF file",
        "torch-archive": "a TorchServe archive",
        "npz": "an npz file of NumPy arrays",
        "npy": "a NumPy array",
        "parquet": "a Parquet file",
        "hdf5": "an HDF5 file, perhaps a Keras model",
        "tar": "a tar archive",
        "zip": "a zip archive without a model that is known here",
        "unknown": "of no kind that is known here",
    }
)
"""What each kind is, in words."""

STARTS: tuple[tuple[re.Pattern[bytes], str], ...] = tuple(
    (re.compile(pattern, re.DOTALL), kind)
    for pattern, kind in (
        (re.escape(TORCH_MAGIC), "torch"),
        (rb"CBM1", "catboost"),
        (rb"tree\r?\nversion=", "lightgbm"),
        (rb"\{L.{8}(learner|version|Config|Model)", "xgboost"),
        (rb"binf", "xgboost"),
        (rb"\s*\{\s*\"(learner|version)\"\s*:", "xgboost"),
        (rb"\x89HDF\r\n\x1a\n", "hdf5"),
        (rb"\x93NUMPY", "npy"),
        (rb"PAR1", "parquet"),
        (rb"GGUF", "gguf"),
        (rb".{4}TFL3", "tflite"),
        (rb".{8}\{\"", "safetensors"),
        (rb".{257}ustar", "tar"),
    )
)


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds.

    Attributes:
        kind: A key of :data:`KINDS`.
        trouble: Why it could not be told better, for damaged archives.
    """

    kind: str
    trouble: str = ""

    @property
    def what(self) -> str:
        """The kind in words."""
        return KINDS[self.kind]


def content_of(path: Path) -> Content:
    """Look at a file's first bytes, and at the names of its members where it is a zip archive.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
        if head.startswith(MAGIC):
            try:
                with Zip(stream) as archive:
                    return Content(_kind_of_zip(archive))
            except ZipUnreadable as problem:
                return Content("unknown", str(problem))
    return Content(kind_of_head(head))


def kind_of_head(head: bytes) -> str:
    """The kind of a file that is no zip archive, by its first :data:`HEAD_BYTES` bytes."""
    for pattern, kind in STARTS:
        if pattern.match(head):
            return kind
    if is_pickle_head(head) or compression_of(head):
        return "pickle"
    return "onnx" if ONNX_START.match(head) else "unknown"


def is_pickle_head(head: bytes) -> bool:
    """Whether a stream begins with the PROTO opcode, as pickles of protocol 2 and later do."""
    return len(head) > 1 and head[0] == 0x80 and head[1] in PICKLE_PROTOCOLS


def _kind_of_zip(archive: Zip) -> str:
    names = archive.names()
    below = {name.partition("/")[2] for name in names}
    if "schema.json" in names:
        return "skops"
    if "archive_format" in below or "serialized_exported_program.json" in names:
        return "pt2"
    if "data.pkl" in below:
        return "torchscript" if "constants.pkl" in below else "torch"
    if "MAR-INF/MANIFEST.json" in names:
        return "torch-archive"
    if "model.weights.h5" in names:
        return "keras"
    if names and all(name.endswith(".npy") for name in names):
        return "npz"
    return "zip"
