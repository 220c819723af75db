"""Reading backend parameters, which are text, with Triton's rules and texts (Triton contract, 4.7)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from repobuild_serve.config.settings import ModelSettings, enum_name
from repobuild_serve.errors import LoadError

_WHOLE_NUMBER = re.compile(r"\s*[+-]?[0-9]+")
_TRUE = frozenset({"true", "on", "1"})
_FALSE = frozenset({"false", "off", "0"})


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an instance runs: the ``kind`` of its instance group and, for a GPU, the device number."""

    kind: str
    device: int = 0

    @property
    def on_gpu(self) -> bool:
        """Whether the instance belongs on a GPU."""
        return self.kind == "KIND_GPU"


def integer(text: str, where: str) -> int:
    """A whole number.

    Args:
        text: What the configuration says.
        where: Which setting of which model it is, for the error.

    Raises:
        LoadError: It is none. Triton takes ``"2x"`` for 2; that is refused here.
    """
    if _WHOLE_NUMBER.fullmatch(text) is None:
        raise LoadError(f"failed to convert '{text}' to integral number ({where})")
    return int(text)


def boolean(text: str, where: str) -> bool:
    """A switch: true, on, 1, false, off or 0 in any case.

    Raises:
        LoadError: It is none of them.
    """
    lowered = text.lower()
    if lowered not in _TRUE | _FALSE:
        raise LoadError(f"failed to convert '{text}' to boolean ({where})")
    return lowered in _TRUE


def where(settings: ModelSettings, key: str) -> str:
    """How a parameter of a model is named in errors."""
    return f"parameter '{key}' of model '{settings.name}'"


def placement(settings: ModelSettings, instance_name: str) -> Placement:
    """The kind and device of the instance called ``instance_name`` (``<group>_<number>``).

    A group with several ``gpus`` hands them out to its instances in turn.
    """
    group_name, _, number = instance_name.rpartition("_")
    for group in settings.message.instance_group:
        if group.name == group_name:
            gpus = list(group.gpus) or [0]
            return Placement(enum_name(group, "kind"), gpus[int(number) % len(gpus)])
    return Placement("KIND_CPU")


def no_gpu(settings: ModelSettings, instance_name: str, reason: str) -> LoadError:
    """The error for a GPU instance that cannot be had."""
    group = instance_name.rpartition("_")[0]
    return LoadError(
        f"instance group {group} of model {settings.name} has kind KIND_GPU but no GPUs are available"
        f" ({reason})"
    )


def shape_text(dims: Any) -> str:
    """Dims as Triton prints them, e.g. ``[-1,3]``."""
    return "[" + ",".join(map(str, dims)) + "]"
