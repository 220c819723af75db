"""Where a module's weights may lie: at the top of a file, under a key of a checkpoint, behind prefixes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

WRAPPERS = ("state_dict", "model_state_dict", "model", "weights", "net", "ema", "params")
"""Keys under which training loops and Lightning put the weights of a checkpoint."""

PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "_forward_module.")
"""What DataParallel, torch.compile, Lightning and DeepSpeed put before every key."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A way in which a file may hold a module's weights.

    Attributes:
        weights: Tensors by key.
        key: The part of the file that they lie in; empty for the file itself.
        note: How they were found; empty for the plainest way.
    """

    weights: Mapping[str, Any]
    key: str = ""
    note: str = ""


def readings(found: Any) -> Iterator[Reading]:
    """Ways in which a file may hold a module's weights, the plainest first.

    Args:
        found: What the file holds.
    """
    turn = list(_nested(found))
    while turn:
        yield from turn
        turn = [
            Reading(
                {k.removeprefix(prefix): v for k, v in reading.weights.items()},
                reading.key,
                "; ".join(
                    t
                    for t in (reading.note, f"the weights' keys begin with '{prefix}', which was taken off")
                    if t
                ),
            )
            for reading in turn
            for prefix in PREFIXES
            if reading.weights and all(k.startswith(prefix) for k in reading.weights)
        ]


def _nested(found: Any) -> Iterator[Reading]:
    if not isinstance(found, Mapping):
        return
    if _weights(found):
        yield Reading(found)
    for key in (*WRAPPERS, *(k for k in found if k not in WRAPPERS)):
        inner = found.get(key)
        if isinstance(inner, Mapping) and inner and _weights(inner):
            yield Reading(inner, str(key), f"the weights were taken from '{key}' of the checkpoint")


def _weights(found: Mapping[Any, Any]) -> bool:
    import torch

    return all(isinstance(k, str) and isinstance(v, torch.Tensor) for k, v in found.items())
