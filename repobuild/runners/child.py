"""A child process beside an artifact, in which code that comes with it runs and nowhere else."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repobuild.errors import from_oserror
from repobuild.interrupts import deferred_interrupts
from repobuild.tensors import Batch
from repobuild.worker.asking import exchange
from repobuild.worker.host import Worker


class RunnerChild:
    """A child process with an artifact in it.

    Args:
        artifact: The file that it runs; the child's own folder lies beside it, until :meth:`close`.
        operation: The question that loads the file.
        parameters: Its parameters. What it answers is :attr:`told`.

    Raises:
        RepobuildError: What the question raises.
        EnvironmentLacking: The child process does not start.
    """

    def __init__(self, artifact: Path, operation: str, **parameters: Any) -> None:
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="runner-", dir=artifact.parent))
        except OSError as problem:
            raise from_oserror(problem, "running the model that was made") from problem
        try:
            with deferred_interrupts():
                self.worker = Worker(self.folder, f"running {artifact.name}")
            try:
                self.told = self.worker.call(operation, path=str(artifact), **parameters)
            except BaseException:
                self.worker.close()
                raise
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def exchange(self, operation: str, requests: Sequence[Batch]) -> list[Batch | str]:
        """The answers to requests, or why they are refused; see :func:`repobuild.worker.asking.exchange`."""
        return exchange(self.worker, operation, self.folder, requests, str)

    def close(self) -> None:
        """End the process and remove its folder."""
        self.worker.close()
        shutil.rmtree(self.folder, ignore_errors=True)
