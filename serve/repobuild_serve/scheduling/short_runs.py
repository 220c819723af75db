"""Which batches are so short that handing them to another thread costs more than running them.

A hand-over wakes a thread and passes the interpreter lock twice, some 100 us on a busy machine; a small
tabular model runs a batch in 30 us. Such batches run on the loop's own thread. A model earns this by a streak
of short runs, for inputs no larger than those of the streak. Every short run also earns it a little credit,
which pays for the odd long one (a page fault, a cold cache, a neighbour on the machine); a long run beyond
its credit ends it for a good while. So long runs hold up the loop for a small share of the time at most.
"""

from __future__ import annotations

from repobuild_serve.core.statistics import Timing
from repobuild_serve.scheduling.forming import Batch

SHORT_NS = 200_000
"""Longest run that may hold up the loop."""
STREAK = 64
"""Short runs in a row before the first one on the loop's thread; doubles whenever one was long after all."""
_LONGEST_STREAK = 1 << 16
_FORGIVEN_AFTER = 4096
_STALLS = 3
EARNED_NS = 5_000
"""What a short run adds to the credit."""
_MOST_CREDIT_NS = 5_000_000


class ShortRuns:
    """Watches the runs of one model.

    Processor time decides, as the time on the clock includes waiting for the interpreter lock and for the
    processor. A model that waits for something else shows by the clock: no run of its streak is short, or
    several runs on the loop's thread in a row are long.

    Args:
        fixed_size: Whether every row of the model's inputs has the same size in bytes.
    """

    def __init__(self, *, fixed_size: bool = False) -> None:
        self._fixed_size = fixed_size
        self._needed = STREAK
        self._streak = 0
        self._size = 0
        self._fastest = SHORT_NS
        self._good = 0
        self._stalls = 0
        self._credit = 0

    def allows(self, batch: Batch) -> bool:
        """Whether a batch may run on the loop's thread."""
        return (
            self._streak >= self._needed and self._fastest < SHORT_NS and self._measure(batch) <= self._size
        )

    def ran_elsewhere(self, batch: Batch, timing: Timing) -> None:
        """Learn from a run on an instance's thread."""
        if not self._paid(timing):
            self._start_over()
            return
        if timing.cpu > SHORT_NS:
            # Paid for, but nothing that a streak is made of: inputs of its size have not shown to be short.
            return
        self._streak += 1
        self._fastest = min(self._fastest, timing.end - timing.start)
        self._size = max(self._size, self._measure(batch))

    def ran_here(self, timing: Timing) -> None:
        """Learn from a run on the loop's thread."""
        self._stalls = self._stalls + 1 if timing.end - timing.start > SHORT_NS else 0
        if not self._paid(timing) or self._stalls >= _STALLS:
            self._needed = min(2 * self._needed, _LONGEST_STREAK)
            self._start_over()
            return
        self._good += 1
        if self._good >= _FORGIVEN_AFTER:
            self._good = 0
            self._needed = max(STREAK, self._needed // 2)

    def _paid(self, timing: Timing) -> bool:
        """Whether a run was short, or its processor time is within the credit."""
        if timing.cpu <= SHORT_NS:
            self._credit = min(self._credit + EARNED_NS, _MOST_CREDIT_NS)
            return True
        self._credit -= timing.cpu
        return self._credit >= 0

    def _start_over(self) -> None:
        self._streak = self._size = self._good = self._stalls = self._credit = 0
        self._fastest = SHORT_NS

    def _measure(self, batch: Batch) -> int:
        """How large the inputs of a batch are: in rows where all rows are alike, else in bytes."""
        if self._fixed_size:
            return batch.rows
        return sum(
            [len(buffer) for ticket in batch.tickets for buffer in ticket.inputs if buffer is not None]
        )
