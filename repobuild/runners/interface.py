"""What a runner does: one file and one row of ``plugins.RUNNERS`` add a runtime."""

from __future__ import annotations

from typing import Protocol

from repobuild.tensors import Batch


class Runner(Protocol):
    """An artifact, loaded."""

    def run(self, batch: Batch) -> Batch:
        """Answer a batch.

        Args:
            batch: One array an input, in the artifact's own types, rows on axis 0.

        Returns:
            One array an output; text as ``object`` arrays of ``str``.

        Raises:
            ConversionFailed: The runtime fails on the batch; its own words are the evidence.
        """
