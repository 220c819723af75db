"""The members that a request of an ensemble needs, from its beginning to its end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from repobuild_serve.config.settings import EnsembleStep
from repobuild_serve.core.services import Directory
from repobuild_serve.errors import RequestError

if TYPE_CHECKING:
    from repobuild_serve.core.model import ModelVersion


class Members:
    """Holds the members, so that one that is replaced or unloaded meanwhile still serves the request.

    Args:
        models: Where to look.
        steps: The steps that the request needs.

    Attributes:
        missing: Why a member could not be found.
    """

    def __init__(self, models: Directory, steps: Iterable[EnsembleStep]) -> None:
        self._held: dict[tuple[str, int], ModelVersion] = {}
        self.missing: RequestError | None = None
        for step in steps:
            key = step.model, step.version
            if key in self._held:
                continue
            try:
                member = models.find(step.model, str(step.version) if step.version >= 0 else "")
            except RequestError as exc:
                self.missing = exc
                return
            member.hold()
            self._held[key] = member

    def of(self, step: EnsembleStep) -> ModelVersion:
        """The member that a step is run by."""
        return self._held[step.model, step.version]

    def let_go(self) -> None:
        """Hold them no longer."""
        for member in self._held.values():
            member.let_go()
        self._held.clear()
