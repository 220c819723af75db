"""The recipe format, checked by pydantic; unknown keys are refused."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

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


def _text_keys(value: Any) -> Any:
    """Axis numbers are text keys in JSON and in the reader of recipes, numbers in Python."""
    if not isinstance(value, dict):
        return value
    return {
        k: {str(a): v for a, v in axes.items()} if isinstance(axes, dict) else axes
        for k, axes in value.items()
    }


def _kind_alone(value: Any) -> Any:
    """``onnxruntime`` stands for ``{kind: onnxruntime}``."""
    return {"kind": value} if isinstance(value, str) else value


Bound = Annotated[float, AfterValidator(_bound)]
TensorName = Annotated[str, AfterValidator(_tensor_name)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class ModuleSection(_Section):
    """``source.module:`` the Python class whose weights a PyTorch file holds."""

    file: Annotated[str | None, Field(min_length=1, description="Python file, relative to the recipe.")] = (
        None
    )
    name: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", description="Importable module, in place of a file."
        ),
    ] = None
    class_: Annotated[str, Field(alias="class", min_length=1, description="Class or factory in that file.")]
    kwargs: Annotated[dict[str, Any], Field(description="Its keyword arguments.")] = {}


class EnvironmentSection(_Section):
    """``source.environment:`` the environment that the model was made in."""

    python: Annotated[str | None, Field(description="Python version, such as '3.11'.")] = None
    requirements: Annotated[str | None, Field(description="pip requirements file.")] = None


class SourceSection(_Section):
    """``source:`` where the trained model lies."""

    path: Annotated[str, Field(min_length=1, description="Model file, relative to the recipe.")]
    kind: Annotated[str | None, Field(description="What the file is; found from it when left out.")] = None
    sha256: Annotated[
        str | None,
        AfterValidator(lambda v: v if v is None else _digest(v)),
        Field(description="A pin: vouches for this very file."),
    ] = None
    method: Annotated[
        Literal["predict", "predict_proba", "decision_function", "transform", "score_samples"] | None,
        Field(description="Estimator method to answer with; default: what the estimator answers with."),
    ] = None
    module: ModuleSection | None = None
    environment: EnvironmentSection | None = None
    custom_ops: Annotated[
        list[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$|\.(so|dll|dylib)$")]],
        Field(
            description="Importable modules that register converters, or libraries of ONNX operators,"
            " relative to the recipe; they need --trust module."
        ),
    ] = []


class TargetReleaseSection(_Section):
    """``target:`` the Triton release that the model must load on."""

    triton: Annotated[str, Field(description="Release, such as '26.10'.", pattern=r"^\d\d\.\d\d$")]


class InputSection(_Section):
    """One item of ``inputs:``."""

    name: Annotated[
        TensorName, Field(description="Tensor name; for a DataFrame model a column, or one matrix.")
    ]
    dtype: Annotated[
        Literal[
            "BOOL",
            "UINT8",
            "UINT16",
            "UINT32",
            "UINT64",
            "INT8",
            "INT16",
            "INT32",
            "INT64",
            "FP16",
            "FP32",
            "FP64",
            "BYTES",
        ]
        | None,
        Field(description="Element type on the wire; FP32 or FP64 by measurement when left out."),
    ] = None
    dims: Annotated[list[Annotated[int, Field(ge=1)]] | None, Field(description="Shape of one row.")] = None


class OutputSection(_Section):
    """One item of ``outputs:``."""

    name: Annotated[TensorName, Field(description="Tensor name.")]
    take: Annotated[
        str | None,
        Field(alias="from", min_length=1, description="Answer to take, or a part: probabilities[:, 1:2]."),
    ] = None
    labels: Annotated[
        Literal["from-classes"] | None,
        Field(
            description="Write the class names into a label file. On a label output, the class index"
            " (INT64) is served in place of the class, which the parameter classes:<output> lists."
        ),
    ] = None


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


class BudgetSection(_Section):
    """``budget:`` what fails the build when it is exceeded."""

    accuracy_drop: Annotated[
        float | None, Field(ge=0, le=1, description="Accuracy on labels: that conversion may cost.")
    ] = None
    label_flips: Annotated[
        int | None, Field(ge=0, description="Sample rows whose class label may change; default 0.")
    ] = None
    file_mb: Annotated[float | None, Field(gt=0, description="Size of the artifact, in 10^6 bytes.")] = None
    p99_ms: Annotated[
        float | None,
        Field(gt=0, description="99th percentile of a lone row's latency on the bundled server."),
    ] = None


class ExportSection(_Section):
    """``export:`` how the ONNX graph is made."""

    opset: Annotated[
        int | None, Field(ge=13, le=28, description="Opset of ONNX's default domain; 17 or 18 when left out.")
    ] = None
    dynamic_axes: Annotated[
        dict[str, dict[str, str]],
        BeforeValidator(_text_keys),
        Field(description="Free axes by tensor: {tokens: {0: batch, 1: length}}."),
    ] = {}
    constants: Annotated[dict[str, Any], Field(description="Arguments of forward, fixed.")] = {}
    keep_inputs: Annotated[list[str], Field(description="Initialisers that stay inputs.")] = []
    dict_argument: Annotated[
        str | None, Field(description="Argument of forward that takes one dict; its keys become inputs.")
    ] = None
    optimise: Annotated[
        bool | None,
        Field(description="Whether to fold and slim the graph; by default, for models that take tensors."),
    ] = None
    sample_dtype: Annotated[
        dict[str, str], Field(description="What the module wants where the file has another type.")
    ] = {}


class TargetSection(_Section):
    """One item of ``targets:`` with options."""

    kind: Annotated[str, Field(min_length=1, description="Compiler: onnxruntime, tensorrt, ...")]
    gpus: Annotated[list[str], Field(description="GPU types to compile for.")] = []
    precision: Annotated[
        Literal["fp32", "fp16", "bf16", "int8", "int8-static", "int8-dynamic"] | None,
        Field(description="Precision of the artifact: fp32, fp16, bf16, int8 (static), int8-dynamic."),
    ] = None
    axis_ranges: Annotated[
        dict[str, dict[str, list[Annotated[int, Field(ge=1)]]]],
        BeforeValidator(_text_keys),
        Field(description="min, opt, max of free axes by tensor."),
    ] = {}


class RecipeDocument(_Section):
    """A repobuild recipe: one model to convert, how to check it and how to serve it."""

    name: Annotated[str, AfterValidator(_model_name), Field(description="Model name in the repository.")]
    source: SourceSection
    target: TargetReleaseSection | None = None
    samples: Annotated[
        str | None,
        Field(min_length=1, description="Real rows: npy, npz, csv, parquet or jsonl; made up when left out."),
    ] = None
    labels: Annotated[
        str | None, Field(min_length=1, description="True targets of the samples, for accuracy, AUC, RMSE.")
    ] = None
    inputs: list[InputSection] = []
    outputs: list[OutputSection] = []
    export: ExportSection = ExportSection()
    targets: Annotated[
        list[
            Annotated[TargetSection, BeforeValidator(_kind_alone, json_schema_input_type=str | TargetSection)]
        ],
        Field(min_length=1, description="What to compile for; a kind, or a kind with options."),
    ] = [TargetSection(kind="onnxruntime")]
    tolerance: ToleranceSection = ToleranceSection()
    budget: BudgetSection = BudgetSection()
    serving: Annotated[dict[str, Any], Field(description="ModelConfig fields under Triton's own names.")] = {}
