"""The steps of an ensemble as the pipeline sees them: plain frozen values, every default filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from repobuild.tensors import DType, Signature, TensorSpec

if TYPE_CHECKING:
    from repobuild.recipe.types import Recipe


@dataclass(frozen=True, slots=True)
class DeclaredTensor:
    """An input or output that a recipe declares.

    Attributes:
        name: Tensor name.
        dtype: Element type.
        dims: Shape without the batch axis; -1 is a free axis.
    """

    name: str
    dtype: DType
    dims: tuple[int, ...]

    def spec(self, *, batched: bool) -> TensorSpec:
        """The tensor with every axis."""
        dims = tuple(None if d < 0 else d for d in self.dims)
        return TensorSpec(self.name, self.dtype, (None, *dims) if batched else dims)


@dataclass(frozen=True, slots=True)
class Step:
    """What python steps and models have in common.

    Attributes:
        name: Name of the step.
        model: Its model in the repository.
        index: Place in the recipe, for messages.
        input_map: Tensor of the ensemble by input of the step.
        output_map: Tensor of the ensemble by output of the step.
    """

    name: str
    model: str
    index: int
    input_map: Mapping[str, str]
    output_map: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PythonStep(Step):
    """A function of numpy arrays.

    Attributes:
        file: The python file, absolute.
        given: Its path as the recipe has it.
        function: Name of the function in it.
        inputs: What it takes.
        outputs: What it answers with.
        files: Further files for its folder, absolute.
        parameters: Its second argument.
        requirements: File of pip requirements, absolute; ``None`` without.
        serving: ModelConfig fields.
    """

    file: Path
    given: str
    function: str
    inputs: tuple[DeclaredTensor, ...]
    outputs: tuple[DeclaredTensor, ...]
    files: tuple[Path, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    requirements: Path | None = None
    serving: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def signature(self, *, batched: bool) -> Signature:
        """Its tensors."""
        inputs, outputs = (
            tuple(t.spec(batched=batched) for t in side) for side in (self.inputs, self.outputs)
        )
        return Signature(inputs, outputs, batched)

    def sources(self) -> tuple[Path, ...]:
        """The files that a build reads."""
        more = () if self.requirements is None else (self.requirements,)
        return (self.file, *self.files, *more)


@dataclass(frozen=True, slots=True)
class ModelStep(Step):
    """A model with a recipe of its own.

    Attributes:
        recipe: That recipe.
    """

    recipe: Recipe

    def sources(self) -> tuple[Path, ...]:
        """The files that a build reads."""
        return self.recipe.files()


AnyStep: TypeAlias = PythonStep | ModelStep


@dataclass(frozen=True, slots=True)
class EnsembleRecipe:
    """How models are joined to one.

    Attributes:
        steps: The steps, each after those that make what it takes.
        inputs: Names of the inputs, in order.
        outputs: Names of the outputs, in order.
        expected: File of the user's own answers to the samples, absolute; ``None`` without.
        expected_given: That path as the recipe has it.
    """

    steps: tuple[AnyStep, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    expected: Path | None = None
    expected_given: str = ""

    @property
    def carries_code(self) -> bool:
        """Whether a step is code that a server runs."""
        return any(isinstance(s, PythonStep) for s in self.steps)

    def files(self) -> tuple[Path, ...]:
        """The files that its steps are made of, and the answers that are expected."""
        steps = tuple(path for step in self.steps for path in step.sources())
        return steps if self.expected is None else (*steps, self.expected)
