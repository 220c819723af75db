"""How a model that takes named tensors is fed: its inputs, and what each of their axes is."""

from __future__ import annotations

from dataclasses import dataclass

from repobuild.tensors import Array, Batch, DType, TensorSpec

BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of an input.

    Attributes:
        size: Its size in the samples.
        label: What it is called where it is free; ``None`` where its size is fixed. Axes with one label have
            one size.
    """

    size: int
    label: str | None = None


@dataclass(frozen=True, slots=True)
class TensorInput:
    """One input.

    Attributes:
        name: Its name.
        sample: The sample array that feeds it.
        dtype: Its element type on the wire.
        axes: Its axes as the model takes it.
    """

    name: str
    sample: str
    dtype: DType
    axes: tuple[Axis, ...]

    def axis_of(self, label: str) -> int | None:
        """The axis with a label, ``None`` without."""
        return next((i for i, a in enumerate(self.axes) if a.label == label), None)


@dataclass(frozen=True, slots=True)
class TensorFeed:
    """All inputs.

    Attributes:
        inputs: In the order of the model's call.
        batch: Label of the axis that holds the rows; ``None`` where no axis does.
    """

    inputs: tuple[TensorInput, ...]
    batch: str | None

    @property
    def rows_first(self) -> bool:
        """Whether axis 0 of every input holds the rows, as Triton's batching needs it."""
        return self.batch is not None and all(i.axes and i.axes[0].label == self.batch for i in self.inputs)

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of all free axes, the batch's left out, in order of appearance."""
        found = dict.fromkeys(a.label for i in self.inputs for a in i.axes if a.label is not None)
        return tuple(label for label in found if label != self.batch)

    def free(self) -> dict[str, dict[int, str]]:
        """Labels of the free axes by input."""
        return {
            i.name: {k: a.label for k, a in enumerate(i.axes) if a.label is not None} for i in self.inputs
        }

    def sizes(self) -> dict[str, int]:
        """Size of each free axis in the samples."""
        return {a.label: a.size for i in self.inputs for a in i.axes if a.label is not None}

    def specs(self, *, batched: bool) -> tuple[TensorSpec, ...]:
        """The inputs as they are emitted; an input without an axis of its own gets one of size 1."""
        return tuple(TensorSpec(i.name, i.dtype, _emitted(i, batched=batched)) for i in self.inputs)

    def to_wire(self, request: Batch, *, batched: bool) -> dict[str, Array]:
        """A request as a client sends it.

        Args:
            request: One array an input, in the shapes that the model takes.
            batched: Whether axis 0 is the batch axis, so that one more axis is needed.
        """
        import numpy as np

        wire = {}
        for item in self.inputs:
            array = np.asarray(request[item.name])
            lowest = 2 if batched else 1
            wire[item.name] = array.reshape(*array.shape, *[1] * (lowest - array.ndim))
        return wire


def _emitted(item: TensorInput, *, batched: bool) -> tuple[int | None, ...]:
    shape = tuple(None if a.label is not None else a.size for a in item.axes)
    lowest = 2 if batched else 1
    return (*shape, *[1] * (lowest - len(shape)))
