"""The modules of the zoo with their seeded weights, and their own answers."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.zoo.architecture import FOLDER, Architecture

if TYPE_CHECKING:
    import numpy as np
    import torch


def empty(architecture: Architecture) -> torch.nn.Module:
    """The module as its file makes it."""
    spec = importlib.util.spec_from_file_location(f"zoo_{architecture.file[:-3]}", FOLDER / architecture.file)
    assert spec is not None
    assert spec.loader is not None
    file = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(file)
    return getattr(file, architecture.cls)(**architecture.kwargs)


def build(architecture: Architecture) -> torch.nn.Module:
    """The module in eval mode, with weights that depend on its name alone.

    Libraries start many layers near zero, so that answers hardly depend on the input, and normalisations at
    the identity, so that forgetting one is not noticed. Here every matrix keeps the variance of what it is
    given, and nothing is at its neutral value.
    """
    import torch

    seed = zlib.crc32(architecture.name.encode())
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = empty(architecture).eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in (*net.named_parameters(), *net.named_buffers()):
            if name.endswith("running_var"):
                value.copy_(torch.rand(value.shape, generator=draw) + 0.5)
            elif name.endswith("running_mean"):
                value.copy_(torch.randn(value.shape, generator=draw) * 0.2)
            elif isinstance(value, torch.nn.Parameter):
                _redraw(name, value, architecture.gain, draw)
    return net


def _redraw(name: str, value: torch.Tensor, gain: float, draw: torch.Generator) -> None:
    import torch

    noise = torch.randn(value.shape, generator=draw)
    if value.ndim >= 2:
        value.copy_(noise * gain / math.sqrt(value[0].numel()))
    elif name.endswith("weight"):
        value.copy_(1 + 0.2 * noise)
    else:
        value.add_(0.2 * noise)


def save_weights(architecture: Architecture, path: Path) -> None:
    """Write the state_dict, as safetensors or with torch.save, as the ending says."""
    import torch

    weights = build(architecture).state_dict()
    if path.suffix == ".safetensors":
        from safetensors.torch import save_file

        save_file({name: value.contiguous() for name, value in weights.items()}, path)
    else:
        torch.save(weights, path)


def answer(
    net: torch.nn.Module, architecture: Architecture, feed: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """What the module answers, by the names of the catalog.

    Raises:
        AssertionError: The module gives another number of tensors than the catalog names.
    """
    import torch

    with torch.no_grad():
        found = net(
            **{name: torch.from_numpy(value) for name, value in feed.items()}, **architecture.constants
        )
    tensors = list(leaves(found))
    return {name: value.numpy() for name, value in zip(architecture.outputs, tensors, strict=True)}


def leaves(value: Any) -> Iterator[torch.Tensor]:
    """Tensors of an answer in the order in which its structure holds them; None is left out."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif dataclasses.is_dataclass(value):
        for entry in dataclasses.fields(value):
            yield from leaves(getattr(value, entry.name))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from leaves(item)
