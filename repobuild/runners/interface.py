"""What a runner does: one file and one row of ``plugins.RUNNERS`` add a runtime."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from repobuild.artifact import Artifact
from repobuild.tensors import Batch


class Runnable(Protocol):
    """What answers batches."""

    def run(self, batch: Batch) -> Batch:
        """Answer a batch.

        Args:
            batch: One array an input, in the artifact's own types, rows on axis 0.

        Returns:
            One array an output; text as ``object`` arrays of ``str``.

        Raises:
            ConversionFailed: The runtime fails on the batch; its own words are the evidence.
        """


class Runner(Runnable, Protocol):
    """An artifact, loaded.

    Used as a context manager; leaving it ends what it runs in.
    """

    @classmethod
    def of(cls, artifact: Artifact) -> Self:
        """Load an artifact.

        Raises:
            ConversionFailed: The runtime refuses it.
            EnvironmentLacking: The runtime is not installed, or cannot be started.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...
