"""Inputs and outputs in a configuration, by themselves (Triton's ``ValidateIOShape`` and its callers)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from repobuild.lint.finding import Findings
from repobuild.lint.model import Model, View, enum_name


def check_tensors(model: Model, view: View, findings: Findings, *, completes: bool) -> None:
    """Check ``input``, ``output``, ``batch_input`` and ``batch_output``.

    Args:
        model: The model.
        view: The configuration.
        findings: Where findings go.
        completes: Whether the backend may complete single tensors.
    """
    for kind, items in (("input", view.config.input), ("output", view.config.output)):
        seen: set[str] = set()
        for index, item in enumerate(items):
            _check_tensor(view, findings, kind, index, item, completes=completes)
            if item.name and item.name in seen:
                findings.add(
                    "tensor-name-twice",
                    f"{kind} '{item.name}' stands twice",
                    *view.where(kind, index, "name"),
                )
            seen.add(item.name)
    _check_batch_io(view, findings)


def _check_tensor(
    view: View, findings: Findings, kind: str, index: int, item: Any, *, completes: bool
) -> None:
    def add(rule: str, message: str, *below: str | int) -> None:
        findings.add(rule, message, *view.where(kind, index, *below))

    if not item.name:
        add("tensor-name-missing", f"model {kind} must specify 'name'")
        return
    called = f"model {kind} '{item.name}'"
    if not completes and item.data_type == 0:
        add("tensor-type-missing", f"{called} must specify 'data_type'")
    if not completes and not item.dims:
        add("tensor-dims-missing", f"{called} must specify 'dims'")
    for number, dim in enumerate(item.dims):
        if dim < 1 and dim != -1:
            add("tensor-dim-invalid", f"{called} has the dim {dim}", "dims", number)
    if item.HasField("reshape"):
        _check_reshape(view, findings, kind, index, item)
    if kind == "input":
        if enum_name(item, "format") != "FORMAT_NONE" and len(item.dims) != 3:
            add("format-dims", f"{called} has {len(item.dims)} dims with an NHWC or NCHW format", "format")
        if item.allow_ragged_batch and view.config.max_batch_size == 0 and not completes:
            add("ragged-without-batching", f"{called} allows ragged batches", "allow_ragged_batch")
    tensorrt = view.effective.platform == "tensorrt_plan"
    if item.is_shape_tensor and not tensorrt:
        add("shape-tensor", f"{called} is a shape tensor", "is_shape_tensor")
    if item.is_non_linear_format_io and (not tensorrt or len(item.dims) != 3):
        add("non-linear-format", f"{called} has a non-linear format", "is_non_linear_format_io")


def _check_reshape(view: View, findings: Findings, kind: str, index: int, item: Any) -> None:
    called, dims, shape = f"model {kind} '{item.name}'", list(item.dims), list(item.reshape.shape)

    def add(rule: str, message: str, *below: str | int) -> None:
        findings.add(rule, message, *view.where(kind, index, "reshape", *below))

    wrong = [(n, d) for n, d in enumerate(shape) if d < 1 and d != -1]
    for number, dim in wrong:
        add("reshape-dim-invalid", f"{called} has the reshape dim {dim}", "shape", number)
    if wrong or any(d < 1 and d != -1 for d in dims) or not dims:
        return
    if not shape and view.config.max_batch_size == 0:
        add("reshape-empty", f"{called} cannot have an empty reshape without batching")
        return
    if dims.count(-1) != shape.count(-1):
        add("reshape-wildcards", f"{called} has dims {dims} and reshape {shape}")
    elif _parts(dims) != _parts(shape):
        add("reshape-size", f"{called} has dims {dims} and reshape {shape}")


def _parts(dims: Sequence[int]) -> list[int]:
    """Element counts before, between and after the variable dims."""
    parts: list[list[int]] = [[]]
    for dim in dims:
        if dim == -1:
            parts.append([])
        else:
            parts[-1].append(dim)
    return [math.prod(part) for part in parts]


def _check_batch_io(view: View, findings: Findings) -> None:
    inputs = {item.name for item in view.config.input}
    outputs = {item.name for item in view.config.output}
    for kind, items in (("batch_input", view.config.batch_input), ("batch_output", view.config.batch_output)):
        for index, item in enumerate(items):
            if len(item.source_input) != 1:
                findings.add(
                    "batch-source-count",
                    f"{kind} kind '{enum_name(item, 'kind')}' expects 1 source input, got "
                    f"{len(item.source_input)}",
                    *view.where(kind, index),
                )
            for number, name in enumerate(item.source_input):
                if name not in inputs:
                    findings.add(
                        "batch-source-unknown",
                        f"unknown source input name '{name}'",
                        *view.where(kind, index, "source_input", number),
                    )
    for index, item in enumerate(view.config.batch_input):
        if enum_name(item, "data_type") not in ("TYPE_INT32", "TYPE_FP32"):
            findings.add(
                "batch-input-type",
                f"batch input data type must be TYPE_INT32 or TYPE_FP32, not {enum_name(item, 'data_type')}",
                *view.where("batch_input", index, "data_type"),
            )
    for index, item in enumerate(view.config.batch_output):
        seen: set[str] = set()
        for number, name in enumerate(item.target_name):
            place = view.where("batch_output", index, "target_name", number)
            if name not in outputs:
                findings.add("batch-target-unknown", f"unknown target output name '{name}'", *place)
            elif name in seen:
                findings.add("batch-target-twice", f"target output name '{name}' stands twice", *place)
            seen.add(name)


def completes_tensors(model: Model, view: View, python_completes: bool) -> bool:
    """Whether Triton's backend completes tensors that the configuration gives in part.

    ONNX Runtime completes whole lists only, TorchScript nothing; a python model does if it says so; of other
    backends nothing is known.
    """
    backend = view.effective.backend
    if backend == "python":
        return python_completes
    return backend not in ("onnxruntime", "pytorch", "ensemble")


def tensors(config: Any) -> Iterator[tuple[str, int, Any]]:
    """All inputs and outputs: ``("input", index, item)``."""
    for kind, items in (("input", config.input), ("output", config.output)):
        for index, item in enumerate(items):
            yield kind, index, item
