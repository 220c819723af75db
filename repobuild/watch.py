"""How a build tells of its progress: the library calls a watcher, and only the command line prints."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol


class Watch(Protocol):
    """Told of steps as they go."""

    def began(self, step: str) -> None:
        """A step starts."""

    def ended(self, step: str, detail: str, seconds: float) -> None:
        """A step has succeeded."""

    def note(self, text: str) -> None:
        """Something that a reader should know."""


class Silent:
    """Says nothing."""

    def began(self, step: str) -> None:
        """Nothing."""

    def ended(self, step: str, detail: str, seconds: float) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""


class StepDetail:
    """Collects what a step wants to say at its end."""

    def __init__(self) -> None:
        self.text = ""

    def say(self, text: str) -> None:
        """Set the sentence shown when the step ends."""
        self.text = text


@contextlib.contextmanager
def step(watch: Watch, name: str) -> Iterator[StepDetail]:
    """Tell the watcher of a step around a block; a step that raises does not end."""
    watch.began(name)
    detail = StepDetail()
    start = time.monotonic()
    yield detail
    watch.ended(name, detail.text, time.monotonic() - start)
