"""Asks a TorchScript file in PyTorch, in a child process: its code runs nowhere else."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from repobuild.artifact import Artifact
from repobuild.errors import ConversionFailed, evidence
from repobuild.runners.child import RunnerChild
from repobuild.tensors import Batch
from repobuild.worker.script_host import ask_script


class PyTorchRunner:
    """TorchScript, loaded on the CPU from its file alone, without the module that it was made of.

    Args:
        artifact: The file, and the names by which Triton finds its arguments and answers.

    Raises:
        ConversionFailed: PyTorch refuses the file.
        EnvironmentLacking: The child process does not start.
    """

    def __init__(self, artifact: Artifact) -> None:
        self._outputs = [o.name for o in artifact.signature.outputs]
        self._child = RunnerChild(
            artifact.path,
            "open_script_file",
            inputs=[i.name for i in artifact.signature.inputs],
            outputs=self._outputs,
        )

    @classmethod
    def of(cls, artifact: Artifact) -> Self:
        """See :meth:`repobuild.runners.interface.Runner.of`."""
        return cls(artifact)

    def run(self, batch: Batch) -> Batch:
        """See :meth:`repobuild.runners.interface.Runner.run`."""
        found = ask_script(self._child.worker, self._child.folder, self._outputs, batch)
        if isinstance(found, str):
            raise ConversionFailed(
                "runtime-failed",
                "PyTorch fails on the samples",
                evidence([found]),
                "the operator named above does not accept these values",
            )
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.close()
