"""What an instance's process is started with and told."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from repobuild_serve.backends.model_backend import Opening
from repobuild_serve.backends.parameters import placement
from repobuild_serve.backends.python.coding import Coding
from repobuild_serve.backends.python.environment import Interpreter, interpreter
from repobuild_serve.config.printing import config_document
from repobuild_serve.errors import LoadError

BACKEND = "python"
START_SECONDS = "stub-timeout-seconds"
_DEFAULT_START_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Launch:
    """What is needed to start the process of an instance, any number of times.

    Attributes:
        interpreter: What runs it.
        start_seconds: How long the process may take until it can be told anything.
        message: What it is told first.
    """

    interpreter: Interpreter
    start_seconds: float
    message: dict[str, Any]


def launch_of(opening: Opening, coding: Coding) -> Launch:
    """How to start an instance.

    Raises:
        LoadError: Its execution environment cannot be used, or a parameter or option has no valid value.
    """
    settings = opening.settings
    cpu_only = settings.parameters.get("FORCE_CPU_ONLY_INPUT_TENSORS", "yes")
    if cpu_only not in {"yes", "no"}:
        raise LoadError(f"Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: {cpu_only}'")
    folder = str(settings.folder)
    place = placement(settings, opening.name)
    message = {
        "op": "initialize",
        "instance": opening.name,
        "path": os.fspath(opening.path),
        "folder": os.fspath(opening.path.parent),
        "version_folder": opening.path.parent.name,
        "inputs": coding.inputs,
        "outputs": coding.outputs,
        "decoupled": settings.decoupled,
        "args": {
            "model_config": json.dumps(config_document(settings.message), separators=(",", ":")),
            "model_instance_kind": place.kind.removeprefix("KIND_"),
            "model_instance_name": opening.name,
            "model_instance_device_id": str(place.device),
            "model_repository": folder,
            "model_version": str(opening.version),
            "model_name": settings.name,
        },
    }
    return Launch(
        interpreter(settings.parameters, settings.folder),
        start_seconds(opening.services.backend_options.get(BACKEND, {})),
        message,
    )


def start_seconds(options: Mapping[str, str]) -> float:
    """The backend option ``stub-timeout-seconds``.

    Raises:
        LoadError: It is no positive number.
    """
    text = options.get(START_SECONDS, str(_DEFAULT_START_SECONDS))
    try:
        seconds = int(text)
    except ValueError:
        seconds = 0
    if seconds <= 0:
        raise LoadError(f"backend option stub-timeout-seconds must be a positive integer, not '{text}'")
    return float(seconds)
