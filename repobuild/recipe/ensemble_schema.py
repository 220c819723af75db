"""The format of recipes for ensembles: ``ensemble:`` in place of ``source:``."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from repobuild.recipe.schema import (
    ModelName,
    TargetReleaseSection,
    TensorName,
    ToleranceSection,
    WireType,
)

FUNCTION = r"^[A-Za-z_]\w*$"
PLAIN_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


def _distinct(names: list[str]) -> list[str]:
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} is named twice")
    return names


def _dim(value: int) -> int:
    if value == 0:
        raise ValueError("must be positive, or -1 for a free axis")
    return value


Names = Annotated[list[TensorName], AfterValidator(_distinct)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class StepTensor(_Section):
    """One input or output of a python step."""

    name: Annotated[TensorName, Field(description="Tensor name, a key of the function's dictionary.")]
    dtype: Annotated[WireType, Field(description="Element type.")]
    dims: Annotated[
        list[Annotated[int, Field(ge=-1), AfterValidator(_dim)]],
        Field(min_length=1, description="Shape of one row, -1 for a free axis; all axes without batches."),
    ]


class PythonSection(_Section):
    """``ensemble.steps[].python:`` a function of numpy arrays."""

    file: Annotated[str, Field(min_length=1, description="Python file, relative to the recipe.")]
    function: Annotated[str, Field(pattern=FUNCTION, description="Its function; default run.")] = "run"
    inputs: Annotated[list[StepTensor], Field(min_length=1, description="What it takes.")]
    outputs: Annotated[list[StepTensor], Field(min_length=1, description="What it answers with.")]
    files: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Field(description="Further files, such as vocabularies, that are put beside the function's."),
    ] = []
    parameters: Annotated[
        dict[str, Any], Field(description="Values handed to the function as its second argument.")
    ] = {}
    requirements: Annotated[
        str | None,
        Field(min_length=1, description="pip requirements that the server's Python must meet."),
    ] = None


class StepSection(_Section):
    """One item of ``ensemble.steps``."""

    name: Annotated[ModelName, Field(description="Name of the step.")]
    model: Annotated[
        ModelName | None, Field(description="Its model in the repository; default <recipe>_<step>.")
    ] = None
    python: PythonSection | None = None
    recipe: Annotated[
        str | None, Field(min_length=1, description="Recipe of a model, relative to this one.")
    ] = None
    input_map: Annotated[
        dict[TensorName, TensorName],
        Field(description="Tensor of the ensemble by input of the step; needed for models."),
    ] = {}
    output_map: Annotated[
        dict[TensorName, TensorName],
        Field(description="Tensor of the ensemble by output of the step; needed for models."),
    ] = {}
    serving: Annotated[
        dict[str, Any], Field(description="ModelConfig fields of a python step, such as instance_group.")
    ] = {}

    @model_validator(mode="after")
    def _one_kind(self) -> StepSection:
        if (self.python is None) == (self.recipe is None):
            raise ValueError("a step has either python: or recipe:")
        if self.recipe is not None and not (self.input_map and self.output_map):
            raise ValueError("a step with recipe: needs input_map and output_map")
        if self.recipe is not None and self.serving:
            raise ValueError("serving: of a model is in its own recipe")
        return self


class EnsembleSection(_Section):
    """``ensemble:`` models joined to one that is served as a whole."""

    steps: Annotated[list[StepSection], Field(min_length=1, description="Its steps, in any order.")]
    inputs: Annotated[
        Names, Field(description="Its inputs in order; default: tensors that no step makes.")
    ] = []
    outputs: Annotated[
        Names, Field(description="Its outputs in order; default: tensors that no step takes.")
    ] = []


class EnsembleDocument(_Section):
    """A repobuild recipe of an ensemble: several models, checked and served as one."""

    name: Annotated[ModelName, Field(description="Name of the ensemble in the repository.")]
    ensemble: EnsembleSection
    samples: Annotated[
        str,
        Field(min_length=1, description="Real requests to the whole: npy, npz, csv, parquet or jsonl."),
    ]
    expected: Annotated[
        str | None,
        Field(min_length=1, description="Your own answers to the samples, one array an output (npz)."),
    ] = None
    target: TargetReleaseSection | None = None
    tolerance: ToleranceSection = ToleranceSection()
    serving: Annotated[
        dict[Literal["max_batch_size", "parameters"], Any],
        Field(description="max_batch_size, for all steps; parameters of the ensemble."),
    ] = {}


def plain_file(name: str) -> bool:
    """Whether a file of that name may lie in a version folder."""
    return bool(PLAIN_FILE.fullmatch(name)) and len(name) <= 128
