"""What is counted per model version (Triton contract, statistics and metrics)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

REASONS = ("BACKEND", "CANCELED", "OTHER", "REJECTED")


@dataclass(slots=True)
class Duration:
    """How often something happened and for how long altogether, in nanoseconds."""

    count: int = 0
    ns: int = 0

    def add(self, count: int, ns: int) -> None:
        """Count ``count`` events that took ``ns`` nanoseconds together."""
        self.count += count
        self.ns += ns

    def document(self) -> dict[str, int]:
        """As in the statistics JSON."""
        return {"count": self.count, "ns": self.ns}


@dataclass(frozen=True, slots=True)
class Timing:
    """When an execution passed its stages, by ``time.monotonic_ns()``, and its processor time in ns."""

    start: int
    input_end: int
    infer_end: int
    end: int
    cpu: int = 0


@dataclass(slots=True)
class Spent:
    """What a request of an ensemble took, in nanoseconds.

    Attributes:
        queue: From its arrival to the start of its first step.
        compute_input: Sum over the steps, like those that follow; what they wait is in none of them.
        compute_infer: See there.
        compute_output: See there.
    """

    queue: int = 0
    compute_input: int = 0
    compute_infer: int = 0
    compute_output: int = 0

    def add(self, timing: Timing) -> None:
        """Count the execution of a step."""
        self.compute_input += timing.input_end - timing.start
        self.compute_infer += timing.infer_end - timing.input_end
        self.compute_output += timing.end - timing.infer_end

    def timing(self, arrived: int) -> Timing:
        """What one execution of a request that arrived at ``arrived`` would have passed to take as long."""
        start = arrived + self.queue
        input_end = start + self.compute_input
        infer_end = input_end + self.compute_infer
        return Timing(start, input_end, infer_end, infer_end + self.compute_output)


@dataclass(slots=True)
class BatchCount:
    """Executions of one batch size."""

    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)


@dataclass(slots=True)
class Statistics:
    """Counters of one model version, written by one thread at a time: first the loader's, then the loop's."""

    last_inference: int = 0
    inference_count: int = 0
    execution_count: int = 0
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    batches: dict[int, BatchCount] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))

    def executed(self, rows: int, requests: int, waited_ns: int, timing: Timing) -> None:
        """Count one successful execution.

        The compute times count in full for each request of the batch; so does the execution's batch size
        once.

        Args:
            rows: Total batch size.
            requests: Number of requests in the batch.
            waited_ns: Sum over the requests of the time from arrival to the start of the execution.
            timing: Stages of the execution.
        """
        self.last_inference = time.time_ns() // 1_000_000
        self.inference_count += rows
        self._count_batch(rows, timing)
        self.queue.add(requests, waited_ns)
        self.compute_input.add(requests, requests * (timing.input_end - timing.start))
        self.compute_infer.add(requests, requests * (timing.infer_end - timing.input_end))
        self.compute_output.add(requests, requests * (timing.end - timing.infer_end))
        self.success.add(requests, waited_ns + requests * (time.monotonic_ns() - timing.start))

    def failed_execution(self, rows: int, requests: int, waited_ns: int, timing: Timing) -> None:
        """Count an execution whose every request failed; ``inference_count`` does not grow."""
        self.last_inference = time.time_ns() // 1_000_000
        self._count_batch(rows, timing)
        self.fail.add(requests, waited_ns + requests * (timing.end - timing.start))
        self.failures["BACKEND"] += requests

    def rejected(self, requests: int, waited_ns: int) -> None:
        """Count requests whose queue time-out expired."""
        self.fail.add(requests, waited_ns)
        self.failures["REJECTED"] += requests

    def ran_steps(self, rows: int, took_ns: int, spent: Spent) -> None:
        """Count a request of an ensemble: ``took_ns`` from arrival to its last response."""
        self.last_inference = time.time_ns() // 1_000_000
        self.inference_count += rows
        self.execution_count += 1
        batch = self.batches.setdefault(rows, BatchCount())
        for name in ("compute_input", "compute_infer", "compute_output"):
            ns = getattr(spent, name)
            getattr(batch, name).add(1, ns)
            getattr(self, name).add(1, ns)
        self.queue.add(1, spent.queue)
        self.success.add(1, took_ns)

    def failed_steps(self, took_ns: int, times: int = 1) -> None:
        """Count a request of an ensemble one of whose steps failed; older Tritons count it twice."""
        self.fail.add(times, took_ns)
        self.failures["OTHER"] += 1

    def refused(self, requests: int = 1) -> None:
        """Count requests that failed because no instance could run them."""
        self.fail.add(requests, 0)
        self.failures["OTHER"] += requests

    def merge(self, other: Statistics) -> None:
        """Add executions that were counted elsewhere: the warm-up of instances that came later."""
        self.last_inference = max(self.last_inference, other.last_inference)
        self.inference_count += other.inference_count
        self.execution_count += other.execution_count
        for name in ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output"):
            counted: Duration = getattr(other, name)
            getattr(self, name).add(counted.count, counted.ns)
        for size, batch in other.batches.items():
            own = self.batches.setdefault(size, BatchCount())
            for name in ("compute_input", "compute_infer", "compute_output"):
                counted = getattr(batch, name)
                getattr(own, name).add(counted.count, counted.ns)
        for reason, count in other.failures.items():
            self.failures[reason] += count

    def _count_batch(self, rows: int, timing: Timing) -> None:
        self.execution_count += 1
        batch = self.batches.get(rows)
        if batch is None:
            batch = self.batches[rows] = BatchCount()
        batch.compute_input.add(1, timing.input_end - timing.start)
        batch.compute_infer.add(1, timing.infer_end - timing.input_end)
        batch.compute_output.add(1, timing.end - timing.infer_end)

    def document(self, name: str, version: int) -> dict[str, Any]:
        """One entry of ``model_stats``."""
        zero = {"count": 0, "ns": 0}
        return {
            "name": name,
            "version": str(version),
            "last_inference": self.last_inference,
            "inference_count": self.inference_count,
            "execution_count": self.execution_count,
            "inference_stats": {
                "success": self.success.document(),
                "fail": self.fail.document(),
                "queue": self.queue.document(),
                "compute_input": self.compute_input.document(),
                "compute_infer": self.compute_infer.document(),
                "compute_output": self.compute_output.document(),
                "cache_hit": zero,
                "cache_miss": zero,
            },
            "response_stats": {},
            "batch_stats": [
                {
                    "batch_size": size,
                    "compute_input": batch.compute_input.document(),
                    "compute_infer": batch.compute_infer.document(),
                    "compute_output": batch.compute_output.document(),
                }
                for size, batch in sorted(self.batches.items())
            ],
            "memory_usage": [],
        }
