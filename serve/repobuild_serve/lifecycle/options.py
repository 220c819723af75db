"""What the command line says about the life cycle."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from repobuild_serve.gpus import MIN_COMPUTE_CAPABILITY, Gpu


class Mode(enum.Enum):
    """When models come and go; the value is the one of ``--model-control-mode``."""

    NONE = "none"
    POLL = "poll"
    EXPLICIT = "explicit"


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """What the command line says about the life cycle.

    Attributes:
        repositories: Folders of models.
        mode: When models come and go.
        auto_complete: Whether missing parts of a config are taken from the model.
        config_name: Value of ``--model-config-name``; empty for none.
        threads: Versions loaded at a time.
        retries: How often a load that failed is tried again at once.
        exit_on_error: Whether a package that is missing at the start ends the server.
        startup: Models to load at the start in explicit mode; ``*`` alone stands for all.
        gpus: The GPUs of this machine.
        min_compute_capability: What they had to offer to be among them.
    """

    repositories: tuple[Path, ...]
    mode: Mode = Mode.NONE
    auto_complete: bool = True
    config_name: str = ""
    threads: int = 4
    retries: int = 0
    startup: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    min_compute_capability: float = MIN_COMPUTE_CAPABILITY
    exit_on_error: bool = True
