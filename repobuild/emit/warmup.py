"""Warm-up samples: real rows in the raw format that Triton reads.

The rules (Triton's model_config.proto, ``ModelWarmup``, and what its loader checks): a file lies under
``<model>/warmup/`` and holds one request's tensor without the batch axis, little-endian and row-major; text
elements are a 4-byte length and the bytes; ``dims`` are concrete; ``batch_size: N`` sends N such requests
together, and 0 skips the sample.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from repobuild.tensors import Array, Batch, DType, Signature, TensorSpec

FOLDER = "warmup"
LARGEST_BATCH = 1024
"""Requests that one warm-up sample sends; the server makes them all at once."""


@dataclass(frozen=True, slots=True)
class WarmupInput:
    """One tensor of a warm-up request.

    Attributes:
        name: Input name.
        dtype: Triton's type name in config.pbtxt.
        dims: Concrete dims without the batch axis.
        file: File name under ``warmup/``.
    """

    name: str
    dtype: str
    dims: tuple[int, ...]
    file: str


@dataclass(frozen=True, slots=True)
class WarmupSample:
    """One ``model_warmup`` entry."""

    name: str
    batch_size: int
    inputs: tuple[WarmupInput, ...]


@dataclass(frozen=True, slots=True)
class Warmup:
    """All warm-up entries of a model and the files they name."""

    samples: tuple[WarmupSample, ...]
    files: dict[str, bytes]


def sample_name(batch_size: int) -> str:
    """Name of the warm-up entry that sends so many rows together."""
    return f"real_row_batch_{batch_size}"


def make_warmup(signature: Signature, warm: Batch, max_batch_size: int) -> Warmup:
    """Warm-up from one request: once alone, and once as the largest batch (or 1024).

    Args:
        signature: The model's tensors.
        warm: A request in the inputs' own types, of one row with a batch dimension.
        max_batch_size: Of config.pbtxt; 0 without batching.
    """
    files: dict[str, bytes] = {}
    inputs = []
    for position, spec in enumerate(signature.inputs):
        row = warm[spec.name][0] if signature.batched else warm[spec.name]
        data = raw_bytes(row, spec.dtype)
        file = f"{_readable(spec, position)}-{_short_digest(data)}"
        files[file] = data
        inputs.append(WarmupInput(spec.name, spec.dtype.config, tuple(row.shape), file))
    if not inputs:
        return Warmup((), {})
    sizes = sorted({1, min(max_batch_size, LARGEST_BATCH)}) if signature.batched else [1]
    samples = tuple(WarmupSample(sample_name(size), size, tuple(inputs)) for size in sizes)
    return Warmup(samples, files)


def is_ours(file: Path) -> bool:
    """Whether a warm-up file bears the name that this module gives to its content."""
    return file.name.rpartition("-")[2] == _short_digest(file.read_bytes())


def _short_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def raw_bytes(array: Array, dtype: DType) -> bytes:
    """A tensor as Triton's raw bytes.

    Args:
        array: Values; text as ``str``.
        dtype: The wire type.
    """
    import numpy as np

    if dtype is DType.BYTES:
        texts = [str(v).encode() for v in np.asarray(array).ravel()]
        return b"".join(struct.pack("<I", len(t)) + t for t in texts)
    little = np.dtype(dtype.numpy).newbyteorder("<")
    return np.ascontiguousarray(array, dtype=little).tobytes()


def _readable(spec: TensorSpec, position: int) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", spec.name).strip("_")[:40]
    return plain or f"input_{position}"
