"""The recipe format, checked by pydantic; unknown keys are refused."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MODEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


def _model_name(name: str) -> str:
    if not MODEL_NAME.fullmatch(name) or len(name) > 128 or name.endswith(".") or ".." in name:
        raise ValueError(
            "must be 1 to 128 letters, digits, '_', '-' or '.', not beginning with '-' or '.', not ending in"
            " '.' and without '..', so that Triton, a shell, a bucket and any file system can bear it"
        )
    return name


def _digest(value: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", value):
        raise ValueError("must be a sha256: 64 hexadecimal digits")
    return value.lower()


def _bound(value: float) -> float:
    if not 0 <= value < float("inf"):
        raise ValueError("must be a finite number of at least 0")
    return value


def _tensor_name(name: str) -> str:
    if not name.strip() or any(ord(c) < 32 for c in name):
        raise ValueError("must be a name without control characters")
    return name


Bound = Annotated[float, AfterValidator(_bound)]
TensorName = Annotated[str, AfterValidator(_tensor_name)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class SourceSection(_Section):
    """``source:`` where the trained model lies."""

    path: Annotated[str, Field(min_length=1)]
    kind: str | None = None
    sha256: Annotated[str, AfterValidator(_digest)] | None = None


class InputSection(_Section):
    """One item of ``inputs:``."""

    name: TensorName
    dtype: Literal["FP32", "FP64", "INT64", "INT32", "BOOL", "BYTES"] | None = None
    dims: list[Annotated[int, Field(ge=1)]] | None = None


class OutputSection(_Section):
    """One item of ``outputs:``."""

    name: TensorName
    take: Annotated[str | None, Field(alias="from", min_length=1)] = None


class BoundsSection(_Section):
    """``atol`` and ``rtol`` of one output."""

    atol: Bound | None = None
    rtol: Bound | None = None


class ToleranceSection(BaseModel):
    """``tolerance:`` bounds for all outputs, and under an output's name for that output alone."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    __pydantic_extra__: dict[str, BoundsSection] = Field(init=False)

    atol: Bound | None = None
    rtol: Bound | None = None


class ExportSection(_Section):
    """``export:`` how the ONNX graph is made."""

    opset: Annotated[int, Field(ge=13, le=21)] | None = None


class RecipeDocument(_Section):
    """A whole recipe file."""

    name: Annotated[str, AfterValidator(_model_name)]
    source: SourceSection
    samples: Annotated[str, Field(min_length=1)]
    inputs: list[InputSection] = []
    outputs: list[OutputSection] = []
    export: ExportSection = ExportSection()
    tolerance: ToleranceSection = ToleranceSection()
    serving: dict[str, Any] = {}
