"""What the child process holds of a model that takes named tensors, whatever framework it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from repobuild.tensors import Array, Batch

if TYPE_CHECKING:
    from repobuild.worker.script_maker import Scriptable


class Declined(Exception):
    """Raised by :meth:`TensorModel.ask` when the model refuses a request; the text is its own first line."""


class TensorModel(Protocol):
    """A loaded model."""

    def description(self) -> dict[str, Any]:
        """``model`` (its class), ``facts`` and ``tools`` for the report, and ``inputs``.

        Each input has ``name``, ``sample`` (the sample array that feeds it), ``dtype`` (wire type, ``None``
        to take the sample's) and ``shape`` (a number, or the label of a free axis, for each axis; ``None``
        where only the samples tell).
        """

    def ask(self, request: Batch) -> dict[str, Array]:
        """The model's own answers, in its own order, one array an answer, axes as the model gives them.

        Args:
            request: One array an input, in the shapes that the model takes.

        Raises:
            Declined: The model refuses the request.
            InputInvalid: It answers with something that is no tensor.
        """

    def observed(self) -> list[str]:
        """Notes on what the calls so far showed, beside their tensors."""

    def export(
        self, opset: int | None, to: Path, example: Batch, free: Mapping[str, Mapping[int, str]]
    ) -> dict[str, Any]:
        """Write the model as ONNX, large tensors beside it in ``<name>.data``.

        Args:
            opset: Opset of the default domain; ``None`` leaves it to the exporter or the file.
            to: File to write.
            example: A request that the model answers.
            free: Label of each free axis by input.

        Returns:
            ``answers`` (the graph output behind each answer), ``inputs`` (the graph input behind each input),
            ``notes``, and ``exporter``, which wrote it.

        Raises:
            ConversionFailed: There is no way; the operator and the line of the user's code are named.
        """


@runtime_checkable
class ScriptableModel(TensorModel, Protocol):
    """A loaded model that TorchScript can be made of."""

    @property
    def given(self) -> str:
        """The model file as the recipe has it."""

    def scriptable(self) -> Scriptable:
        """What TorchScript is made of."""
