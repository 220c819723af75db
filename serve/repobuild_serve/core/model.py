"""One loaded version of a model: what runs it, and its counters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from repobuild_serve.config.settings import ModelSettings
from repobuild_serve.core.statistics import Statistics
from repobuild_serve.core.ticket import Sink, Ticket
from repobuild_serve.wire.plan import InferPlan


class Runner(Protocol):
    """What answers the requests of one model version. Every method is called on the loop's thread."""

    def start(self, loop: asyncio.AbstractEventLoop, sink: Sink) -> None:
        """Make ready for requests; what comes of them goes to ``sink``."""
        ...

    def submit(self, ticket: Ticket) -> None:
        """Take a request; nothing reaches the sink before this call returned.

        Raises:
            RequestError: The request is refused.
        """
        ...

    def pending(self) -> int:
        """Requests whose execution has not begun."""
        ...

    def busy(self) -> bool:
        """Whether any request waits or runs."""
        ...

    def ready(self) -> bool:
        """Whether requests can be run now."""
        ...

    def close(self) -> None:
        """Stop: answer what still waits with an error, and release everything. Does not wait."""
        ...


class ModelVersion:
    """A version that has been loaded and warmed up.

    Args:
        settings: Its configuration.
        version: Its number.
        runner: What answers its requests.
        labels: Class labels per output.
        statistics: Counters; they already hold the warm-up.
        load_seconds: How long loading took.

    Attributes:
        plan: What reading its requests and writing its responses needs.
    """

    def __init__(
        self,
        settings: ModelSettings,
        version: int,
        runner: Runner,
        labels: Sequence[Sequence[str]],
        statistics: Statistics,
        load_seconds: float,
    ) -> None:
        self.settings = settings
        self.version = version
        self.labels = labels
        self.statistics = statistics
        self.load_seconds = load_seconds
        self.plan = InferPlan(settings, version, labels)
        self._runner = runner

    def start(self, loop: asyncio.AbstractEventLoop, sink: Sink) -> None:
        """Start serving; answers go to ``sink``, on the loop's thread."""
        self._runner.start(loop, sink)

    @property
    def submit(self) -> Callable[[Ticket], None]:
        """What takes a request (``Runner.submit``); only after ``start``."""
        return self._runner.submit

    def pending(self) -> int:
        """Requests whose execution has not begun."""
        return self._runner.pending()

    def busy(self) -> bool:
        """Whether any request waits or runs."""
        return self._runner.busy()

    def ready(self) -> bool:
        """Whether requests can be run now."""
        return self._runner.ready()

    def close(self) -> None:
        """Stop. Does not wait for what runs."""
        self._runner.close()
