"""Requests made from the samples: other sizes of every free axis, and values at the edge of what is usual."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from repobuild.tensor_models.feed import TensorFeed
from repobuild.tensors import Array, Batch


@dataclass(frozen=True, slots=True)
class Probe:
    """One request.

    Attributes:
        about: What it tries, as :class:`repobuild.edge_check.EdgeReference` has it: a kind and a place.
        request: One array an input, in the shapes that the model takes.
    """

    about: tuple[str, str]
    request: Batch


def resized(request: Batch, axes: Mapping[str, Mapping[int, str]], label: str, size: int) -> dict[str, Array]:
    """The request with every axis of a label at another size.

    Longer axes repeat the values, each time moved on by one along the axes behind, so that no two rows are
    equal and every value stays one that occurs in the samples.

    Args:
        request: One array an input.
        axes: Labels of free axes by input.
        label: The label.
        size: The new size, at least 1.
    """
    found = dict(request)
    for name, labels in axes.items():
        for axis, have in labels.items():
            if have == label:
                found[name] = _grown(found[name], axis, size)
    return found


def _grown(array: Array, axis: int, size: int) -> Array:
    import numpy as np

    length = array.shape[axis]
    if size <= length:
        return np.ascontiguousarray(np.take(array, range(size), axis=axis))
    pieces = []
    for turn in range(-(-size // length)):
        piece = array
        for other in range(array.ndim):
            if other != axis and turn:
                piece = np.roll(piece, turn, axis=other)
        pieces.append(piece)
    return np.ascontiguousarray(np.take(np.concatenate(pieces, axis=axis), range(size), axis=axis))


def size_probes(feed: TensorFeed, request: Batch, sizes: Mapping[str, tuple[int, ...]]) -> Iterator[Probe]:
    """One request for each further size of each free axis.

    Args:
        feed: The inputs.
        request: The samples.
        sizes: Sizes to try by label.
    """
    free = feed.free()
    for label, wanted in sizes.items():
        for size in wanted:
            yield Probe(("size", f"{label} = {size}"), resized(request, free, label, size))


def beside(request: Batch, probe: Probe) -> list[Batch]:
    """Requests a hair beside a probe, in two directions; floats move by a millionth of the samples' size."""
    import numpy as np

    found: list[Batch] = []
    for seed in (0, 1):
        noise = np.random.default_rng(seed)
        moved = dict(probe.request)
        for name, array in probe.request.items():
            if array.dtype.kind == "f" and array.size:
                known = np.asarray(request[name], dtype=np.float64)
                finite = known[np.isfinite(known)]
                size = float(np.abs(finite).max(initial=0.0)) or 1.0
                with np.errstate(over="ignore", invalid="ignore"):
                    hair = noise.standard_normal(array.shape) * min(size, 1e300) * 1e-6
                    moved[name] = (array + hair).astype(array.dtype)
        found.append(moved)
    return found


def value_probes(feed: TensorFeed, request: Batch) -> Iterator[Probe]:
    """The samples with their floating-point values turned, zero, large or small, or with flags all equal.

    Integers are left as they are but for their extremes, which stay inside what the samples hold, since they
    may be indices.
    """
    import numpy as np

    floats = [i.name for i in feed.inputs if request[i.name].dtype.kind == "f" and request[i.name].size]
    whole = [i.name for i in feed.inputs if request[i.name].dtype.kind in "iu" and request[i.name].size]
    flags = [i.name for i in feed.inputs if request[i.name].dtype.kind == "b" and request[i.name].size]
    if floats:
        for kind, factor in (("negated", -1.0), ("zeros", 0.0), ("large", 8.0), ("small", 0.125)):
            with np.errstate(over="ignore", invalid="ignore"):
                changed: dict[str, Array] = {
                    n: request[n] * np.asarray(factor, request[n].dtype) for n in floats
                }
            yield Probe((kind, ""), {**request, **changed})
    for name in whole:
        array = np.asarray(request[name])
        for kind, value in (("smallest", array.min()), ("largest", array.max())):
            yield Probe((kind, name), {**request, name: np.full_like(array, value)})
    for name in flags:
        for value in (True, False):
            kind = "all true" if value else "all false"
            yield Probe((kind, name), {**request, name: np.full_like(request[name], value)})
