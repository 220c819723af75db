"""Jobs in processes of this machine."""

from __future__ import annotations

import importlib
import multiprocessing
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

from repobuild.executor.interface import Job
from repobuild.interrupts import deferred_interrupts


class LocalExecutor:
    """A pool of fresh interpreter processes.

    Args:
        workers: Jobs that run at once.
    """

    def __init__(self, workers: int) -> None:
        self._pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))

    def submit(self, job: Job) -> Future[Any]:
        """See :meth:`repobuild.executor.interface.Executor.submit`."""
        with deferred_interrupts():
            return self._pool.submit(run_job, job.function, dict(job.arguments))

    def shutdown(self) -> None:
        """See :meth:`repobuild.executor.interface.Executor.shutdown`."""
        self._pool.shutdown()


def run_job(function: str, arguments: dict[str, Any]) -> Any:
    """Import a function by ``module:name`` and call it."""
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)(**arguments)
