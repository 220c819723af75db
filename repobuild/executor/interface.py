"""What an executor does. A job is data, so that it can cross to another process or machine."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Job:
    """A call that can be made elsewhere.

    Attributes:
        function: ``module:name`` of a function that takes and returns JSON-ready values.
        arguments: Its keyword arguments, JSON-ready.
    """

    function: str
    arguments: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


class Executor(Protocol):
    """Runs jobs."""

    def submit(self, job: Job) -> Future[Any]:
        """Start a job.

        Returns:
            A future of the function's value. It raises what the function raised, or
            ``concurrent.futures.process.BrokenProcessPool`` when the job's process died.
        """

    def shutdown(self) -> None:
        """Wait for running jobs and free what the executor holds."""
