"""The states that versions of models go through."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from repobuild_serve.core.model import ModelVersion

UNLOADED = "unloaded"
"""The reason of a version that is UNAVAILABLE because it was to be."""


class State(enum.Enum):
    """State of a version; the value is its name in the repository index."""

    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(slots=True)
class Record:
    """What is known of one version.

    Attributes:
        state: Its state.
        reason: Why it is UNAVAILABLE.
        version: What serves it, if it is READY.
    """

    state: State
    reason: str = ""
    version: ModelVersion | None = None

    @property
    def failed(self) -> bool:
        """Whether it is UNAVAILABLE although it was to be READY."""
        return self.state is State.UNAVAILABLE and self.reason != UNLOADED


@dataclass(slots=True)
class TrackedModel:
    """A model that was loaded, or was to be.

    Attributes:
        name: Model name.
        records: State by version number; -1, alone, stands for a failure that no version is to blame for.
    """

    name: str
    records: dict[int, Record] = field(default_factory=dict)

    def ready(self) -> dict[int, ModelVersion]:
        """The READY versions by number, ascending."""
        return {
            number: record.version
            for number, record in sorted(self.records.items())
            if record.state is State.READY and record.version is not None
        }
