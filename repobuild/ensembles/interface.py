"""What flows between the parts that build an ensemble."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from repobuild.build import Ledger
from repobuild.emit.model import Emission
from repobuild.errors import RepobuildError
from repobuild.recipe.ensemble_types import AnyStep
from repobuild.recipe.types import Tolerance
from repobuild.tensors import Array, Batch, DType, TensorSpec
from repobuild.watch import Watch


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the ensemble, with what it holds for the samples.

    Attributes:
        spec: Type and axes, under its name in the ensemble; ``None`` for an input that nobody declares.
        maker: Who says so, in words.
        values: All samples in one array, axis 0 the rows if the ensemble has batches.
    """

    spec: TensorSpec | None
    maker: str
    values: Array


@dataclass(frozen=True, slots=True)
class Made:
    """A step, built and asked.

    Attributes:
        step: The step.
        inputs: Its inputs under its own names.
        outputs: Its outputs under its own names.
        answers: What it answers itself to the samples, by its own names.
        requests: Requests of sizes that it is served with, and the answers that it must give.
        tolerance: Bounds within which it must.
        ledger: What was found.
        wholes: Whether a row is answered alike in requests of any size.
    """

    step: AnyStep
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    answers: Batch
    requests: tuple[tuple[Batch, Batch], ...]
    tolerance: Tolerance
    ledger: Ledger
    wholes: bool = True


@dataclass(frozen=True, slots=True)
class Placed:
    """A staged model and what of it the repository lacks.

    Attributes:
        model: Model name.
        emission: The staged model.
        new_version: Whether its version is not there yet.
        new_config: Whether config.pbtxt, or a file that it names, is not there as it is.
    """

    model: str
    emission: Emission
    new_version: bool
    new_config: bool

    @property
    def changed(self) -> bool:
        """Whether anything is to be written."""
        return self.new_version or self.new_config


class StepWatch:
    """Tells of the steps of a build under the name of the ensemble's step.

    Args:
        inner: Told of everything.
        name: Name of the step.
    """

    def __init__(self, inner: Watch, name: str) -> None:
        self._inner = inner
        self._name = name

    def began(self, step: str) -> None:
        """See :class:`repobuild.watch.Watch`."""
        self._inner.began(f"{self._name}: {step}")

    def ended(self, step: str, detail: str, seconds: float) -> None:
        """See :class:`repobuild.watch.Watch`."""
        self._inner.ended(f"{self._name}: {step}", detail, seconds)

    def note(self, text: str) -> None:
        """See :class:`repobuild.watch.Watch`."""
        self._inner.note(f"step '{self._name}': {text}")


@contextlib.contextmanager
def naming(step: str) -> Iterator[None]:
    """Let every error of a block name the step."""
    try:
        yield
    except RepobuildError as error:
        named = replace(error, message=f"step '{step}': {error.message}")
        named.__cause__ = error.__cause__ or error
        raise named from error


def shown(spec: TensorSpec, *, batched: bool) -> str:
    """Type and dims in words."""
    kind = "BYTES (text)" if spec.dtype is DType.BYTES else spec.dtype.value
    return f"{kind} {list(spec.dims(batched=batched))}"
