"""Requests to a served architecture, and how far its answers lie from those of the module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.zoo.architecture import Architecture
from tests.zoo.modules import answer, build

if TYPE_CHECKING:
    import numpy as np

SEED = 1000


@dataclass(frozen=True)
class Deviation:
    """The largest deviation of all answers.

    Attributes:
        absolute: Of any element.
        relative: Of any element, in parts of the largest element of its answer.
        requests: How many requests were compared.
    """

    absolute: float
    relative: float
    requests: int


def deviation(client: Any, architecture: Architecture) -> Deviation:
    """Ask at every setting of the architecture and compare each answer with the module's own.

    Args:
        client: ``tritonclient.http.InferenceServerClient``.
        architecture: What is served under its name.

    Raises:
        AssertionError: An answer has another name, type or shape, or lies outside the tolerance.
    """
    net = build(architecture)
    worst, relative = 0.0, 0.0
    settings = architecture.settings()
    for number, sizes in enumerate(settings):
        feed = architecture.draw(SEED + number, sizes)
        want = answer(net, architecture, feed)
        got = ask(client, architecture, feed, tuple(want))
        for name, values in want.items():
            here = compare(architecture, f"{architecture.name} at {sizes}: {name}", got[name], values)
            worst, relative = max(worst, here[0]), max(relative, here[1])
    return Deviation(worst, relative, len(settings))


def ask(
    client: Any, architecture: Architecture, feed: Mapping[str, np.ndarray], outputs: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """One request over HTTP with binary tensors."""
    from tritonclient.http import InferInput, InferRequestedOutput
    from tritonclient.utils import np_to_triton_dtype

    tensors = []
    for name, values in feed.items():
        sent = with_rows(architecture, values)
        tensor = InferInput(name, list(sent.shape), np_to_triton_dtype(sent.dtype))
        tensor.set_data_from_numpy(sent)
        tensors.append(tensor)
    wanted = [InferRequestedOutput(name) for name in outputs]
    result = client.infer(architecture.name, tensors, outputs=wanted)
    return {name: result.as_numpy(name) for name in outputs}


def with_rows(architecture: Architecture, values: np.ndarray) -> np.ndarray:
    """As it is on the wire: behind a batch dimension Triton wants at least one more."""
    return values.reshape(-1, 1) if architecture.batched and values.ndim == 1 else values


def compare(architecture: Architecture, what: str, got: np.ndarray, want: np.ndarray) -> tuple[float, float]:
    """The largest absolute deviation, and the same in parts of the largest wanted element.

    Raises:
        AssertionError: Type or shape differ, or an element lies outside the tolerance.
    """
    import numpy as np

    want = with_rows(architecture, want)
    assert got.dtype == want.dtype, f"{what} is {got.dtype}, the module gives {want.dtype}"
    assert got.shape == want.shape, f"{what} has shape {got.shape}, the module gives {want.shape}"
    assert np.isfinite(want).all(), f"{what}: the module gives what is no finite number"
    if want.size == 0:
        return 0.0, 0.0
    exact = want.dtype.kind != "f"
    a, b = got.astype("float64"), want.astype("float64")
    off = np.abs(a - b)
    allowed = 0.0 if exact else architecture.atol + architecture.rtol * np.abs(b)
    assert (off <= allowed).all(), (
        f"{what} is off by {off.max():.3g}; the largest value is {np.abs(b).max():.3g}"
    )
    return float(off.max()), float(off.max() / max(np.abs(b).max(), 1e-30))
