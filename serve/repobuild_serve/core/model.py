"""One loaded version of a model: what runs it, and its counters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from repobuild_serve.config.settings import ModelSettings
from repobuild_serve.core.readiness import Readiness
from repobuild_serve.core.statistics import Statistics
from repobuild_serve.core.ticket import Sink, Ticket
from repobuild_serve.wire.plan import InferPlan

if TYPE_CHECKING:
    from repobuild_serve.scheduling.workers import Worker


class Runner(Protocol):
    """What answers the requests of one model version. Every method is called on the loop's thread."""

    def start(self, loop: asyncio.AbstractEventLoop, sink: Sink) -> None:
        """Make ready for requests; what comes of them goes to ``sink``."""
        ...

    def submit(self, ticket: Ticket) -> None:
        """Take a request; nothing reaches the sink before this call returned, or if it raised anything.

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

    def readiness(self) -> Readiness:
        """Whether all is as it should be, which is more than that requests can be run."""
        ...

    def close(self) -> None:
        """Stop: answer what still waits with an error, and release everything. Does not wait."""
        ...

    def gone(self) -> bool:
        """Whether everything has been released, some time after ``close``."""
        ...


@runtime_checkable
class Resizable(Protocol):
    """A runner whose instances can be changed while it serves. Called on the loop's thread."""

    def workers(self) -> Sequence[Worker]:
        """The instances, without those that are on their way out."""
        ...

    def resize(self, added: Sequence[Worker], removed: Sequence[Worker]) -> None:
        """Start some instances, and stop others once they are done with what they run."""
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
        signatures: By name, what the instances are like; None as long as they are as the settings have it.
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
        self.signatures: Mapping[str, bytes] | None = None
        self._runner = runner
        self._afterwards: list[Callable[[], None]] = []
        self._holds = 0

    @property
    def runner(self) -> Runner:
        """What answers its requests."""
        return self._runner

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

    def hold(self) -> None:
        """Keep the version from being closed, for requests that are still to come; until ``let_go``."""
        self._holds += 1

    def let_go(self) -> None:
        """End one ``hold``."""
        self._holds -= 1

    def busy(self) -> bool:
        """Whether any request waits or runs, or is still to come."""
        return self._holds > 0 or self._runner.busy()

    def ready(self) -> bool:
        """Whether requests can be run now."""
        return self._runner.ready()

    def readiness(self) -> Readiness:
        """Whether all is as it should be, which is more than that requests can be run."""
        return self._runner.readiness()

    def close(self) -> None:
        """Stop. Does not wait for what runs."""
        self._runner.close()

    def gone(self) -> bool:
        """Whether everything has been released, some time after ``close``."""
        return self._runner.gone()

    def when_gone(self, call: Callable[[], None]) -> None:
        """Call once everything has been released."""
        self._afterwards.append(call)

    def released(self) -> None:
        """Make the calls that wait for the end of this version."""
        while self._afterwards:
            self._afterwards.pop()()
