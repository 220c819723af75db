"""How long, how large and how many: what the child process may use."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

from repobuild.errors import Evidence, UsageProblem

TIMEOUT_VARIABLE = "REPOBUILD_WORKER_TIMEOUT"
MEMORY_VARIABLE = "REPOBUILD_WORKER_MEMORY"
OPERATIONS = ("load", "export", "predict")
DEFAULT_SECONDS = 600.0
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the child process and everything it starts may use.

    Attributes:
        seconds: Seconds that one question may take, by :data:`OPERATIONS`; else :data:`DEFAULT_SECONDS`.
        memory: Bytes of address space of each process, and of memory of all of them together.
        cpu_seconds: Processor time of each process.
        file_bytes: Size of each file that is written.
        disk_bytes: By how much the free space of the build's disk may shrink while a question is under way.
        open_files: Open files of each process.
        processes: Processes in its group.
    """

    seconds: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    memory: int = 16 << 30
    cpu_seconds: int = 24 * 3600
    file_bytes: int = 16 << 30
    disk_bytes: int = 64 << 30
    open_files: int = 1024
    processes: int = 256

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """The defaults, with what ``REPOBUILD_WORKER_TIMEOUT`` and ``REPOBUILD_WORKER_MEMORY`` say.

        The first is seconds for every operation (``900``) or for some (``load=60,predict=900``), the second a
        size (``8GiB``, ``512M`` or bytes).

        Raises:
            UsageProblem: One of them is something else.
        """
        given = os.environ if environment is None else environment
        limits = cls()
        if timeout := given.get(TIMEOUT_VARIABLE, "").strip():
            limits = replace(limits, seconds=MappingProxyType(_seconds(timeout)))
        if memory := given.get(MEMORY_VARIABLE, "").strip():
            limits = replace(limits, memory=_size(memory))
        return limits

    def seconds_for(self, operation: str) -> float:
        """Seconds that a question may take; what is neither load nor export counts as predict."""
        return self.seconds.get(operation, self.seconds.get("predict", DEFAULT_SECONDS))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form that ``Limits(**...)`` reads back."""
        return asdict(replace(self, seconds=dict(self.seconds)))


def _seconds(text: str) -> dict[str, float]:
    try:
        if "=" not in text:
            return dict.fromkeys(OPERATIONS, _positive(text))
        pairs = [item.partition("=") for item in text.split(",")]
        found = {name.strip(): _positive(value) for name, _, value in pairs}
    except ValueError:
        found = {}
    if not found or not found.keys() <= set(OPERATIONS):
        raise _invalid(TIMEOUT_VARIABLE, text, "write seconds: 900, or load=60,predict=900")
    return {name: found.get(name, DEFAULT_SECONDS) for name in OPERATIONS}


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise ValueError(text)
    return value


def _size(text: str) -> int:
    match = SIZE.fullmatch(text)
    size = int(float(match[1]) * UNITS[match[2].lower()]) if match else 0
    if not 1 << 28 <= size < 1 << 60:
        raise _invalid(MEMORY_VARIABLE, text, "write a size of at least 256 MiB, such as 8GiB")
    return size


def _invalid(variable: str, text: str, hint: str) -> UsageProblem:
    return UsageProblem(
        "worker-limit-invalid",
        f"the environment variable {variable} cannot be understood",
        (Evidence(f"it is {text!r}", key=variable),),
        hint,
    )
