"""One loaded version of a model: its instances, scheduler and counters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from repobuild_serve.config.settings import ModelSettings
from repobuild_serve.core.statistics import Statistics
from repobuild_serve.core.ticket import Sink, Ticket
from repobuild_serve.scheduling.direct import DirectFormer
from repobuild_serve.scheduling.forming import BatchFormer
from repobuild_serve.scheduling.scheduler import Former, Scheduler
from repobuild_serve.scheduling.workers import Worker


class ModelVersion:
    """A version that has been loaded and warmed up.

    Args:
        settings: Its configuration.
        version: Its number.
        workers: Its instances, not yet started.
        labels: Class labels per output.
        statistics: Counters; they already hold the warm-up.
        load_seconds: How long loading took.
    """

    def __init__(
        self,
        settings: ModelSettings,
        version: int,
        workers: Sequence[Worker],
        labels: Sequence[Sequence[str]],
        statistics: Statistics,
        load_seconds: float,
    ) -> None:
        self.settings = settings
        self.version = version
        self.labels = labels
        self.statistics = statistics
        self.load_seconds = load_seconds
        self._workers = workers
        self._scheduler: Scheduler | None = None

    def start(self, loop: asyncio.AbstractEventLoop, sink: Sink) -> None:
        """Start the instances; answers go to ``sink``, on the loop's thread."""
        batching = self.settings.batching
        former: Former = BatchFormer(batching, len(self._workers)) if batching else DirectFormer()
        fixed_size = all(item.datatype.size and not item.variable for item in self.settings.inputs)
        self._scheduler = Scheduler(
            loop,
            former,
            self._workers,
            self.statistics,
            sink,
            fixed_size=fixed_size,
            preserve_ordering=batching is not None and batching.preserve_ordering,
        )

    @property
    def submit(self) -> Callable[[Ticket], None]:
        """What queues a request (``Scheduler.submit``); only after ``start``."""
        assert self._scheduler is not None
        return self._scheduler.submit

    def pending(self) -> int:
        """Requests that no instance has begun."""
        return self._scheduler.pending() if self._scheduler else 0

    def busy(self) -> bool:
        """Whether any request waits or runs."""
        return self._scheduler is not None and self._scheduler.busy()

    def close(self) -> None:
        """Stop the instances. Does not wait for a batch that runs."""
        if self._scheduler is not None:
            self._scheduler.close()
        else:
            for worker in self._workers:
                worker.stop()
