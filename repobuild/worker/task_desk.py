"""Answers the parent's requests for work on graphs that native code of a runtime might crash on."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

TASKS: Mapping[str, str] = {
    "load": "repobuild.transforms.run:load",
    "transform": "repobuild.transforms.run:run",
    "rounded": "repobuild.transforms.run:rounded",
    "bisect": "repobuild.transforms.run:bisect",
}
"""What can be asked for, as ``module:function``."""


class TaskDesk:
    """Runs tasks of this package; nothing of a user's."""

    def task(self, name: str, **parameters: Any) -> dict[str, Any]:
        """Run one task."""
        module, _, function = TASKS[name].partition(":")
        answer: dict[str, Any] = getattr(importlib.import_module(module), function)(**parameters)
        return answer
