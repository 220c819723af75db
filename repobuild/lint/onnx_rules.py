"""ONNX graphs against their configuration, by the rules of Triton's ONNX Runtime backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from repobuild.lint.files import Entry
from repobuild.lint.finding import Findings
from repobuild.lint.model import View, enum_name, text_list
from repobuild.lint.onnx_file import OnnxInterface, OnnxTensor
from repobuild.lint.onnx_read import TYPES

DEFAULT_BATCH = 4
"""max_batch_size that the ONNX Runtime backend sets (its option default-max-batch-size)."""
_BATCH_WORDS = ("batch", "n", "b", "bs", "none", "rows", "samples")
_FREE_INITIALISERS = 4
"""IR version from which initialisers that are graph inputs can be overridden by requests."""


_BY_VALUE = (
    "Reshape", "Expand", "Tile", "Slice", "ConstantOfShape", "Range", "Resize", "Upsample", "Pad", "If",
    "Loop", "Scan", "OneHot", "TopK", "Split", "Squeeze", "Unsqueeze", "CenterCropPad", "Constant", "Shape",
    "Size",
)  # fmt: skip
"""Operators through which ONNX Runtime, which folds constants first, may know more than ONNX's inference."""


def check_graph(view: View, graph: OnnxInterface, entry: Entry, findings: Findings) -> None:
    """Check the configuration's tensors against the graph's."""
    gives_inputs = len(view.config.input) + len(view.config.batch_input) > 0
    if not gives_inputs or not view.config.output:
        completed = _completed(view, graph, entry, findings)
        if completed is None:
            return
        view = completed
    if gives_inputs:
        _check_inputs(view, graph, findings)
    _check_sequence_names(view, graph, findings, gives_inputs=gives_inputs)
    for index, item in enumerate(view.config.output):
        _check_output(view, graph, index, item, findings)


def batchable(graph: OnnxInterface) -> bool:
    """Whether Triton takes every first axis for a batch axis (``AutoCompleteMaxBatch``)."""
    return all(t.shape and t.shape[0] == -1 for t in (*graph.inputs, *graph.outputs))


def _completed(view: View, graph: OnnxInterface, entry: Entry, findings: Findings) -> View | None:
    """An incomplete configuration with the batch size that Triton gives it; ``None`` if it is refused."""
    tensors = [*graph.inputs, *graph.outputs]
    written = view.positions.has("max_batch_size")
    place = view.where("max_batch_size") if written else view.where()
    if view.config.max_batch_size > 0:
        if batchable(graph):
            return view
        fixed = [f"'{t.name}' {_shown(t.shape)}" for t in tensors if not t.shape or t.shape[0] != -1]
        findings.add(
            "onnx-auto-batch-impossible",
            "model does not support batching while non-zero max_batch_size is specified",
            *place,
            evidence=[f"{entry.relative}: {text_list(fixed)}"],
        )
        return None
    if not batchable(graph):
        return view
    symbols = {t.symbols[0] if t.symbols else "" for t in tensors}
    if written or not _means_batch(symbols):
        named = ", ".join(sorted(symbol or "(no name)" for symbol in symbols))
        findings.add(
            "onnx-auto-batch",
            f"Triton will take every first axis for a batch axis and set max_batch_size to {DEFAULT_BATCH}",
            *place,
            evidence=[f"{entry.relative}: first axes are {named}"],
        )
    config = type(view.config)()
    config.CopyFrom(view.config)
    config.max_batch_size = DEFAULT_BATCH
    return replace(view, config=config)


def _plain(graph: OnnxInterface) -> bool:
    """Whether ONNX Runtime infers what ONNX does: no foreign operators, no shapes computed from values."""
    return all(d in ("", "ai.onnx.ml") and name not in _BY_VALUE for d, name in graph.operators)


def _means_batch(symbols: set[str]) -> bool:
    """Whether the first axes bear one name that says what they are."""
    if len(symbols) != 1:
        return False
    word = next(iter(symbols)).lower()
    return word in _BATCH_WORDS or "batch" in word


def _check_inputs(view: View, graph: OnnxInterface, findings: Findings) -> None:
    config = view.config
    free = graph.initial if graph.ir >= _FREE_INITIALISERS else []
    known = {t.name: t for t in (*graph.inputs, *free)}
    unknown = 0
    for index, item in enumerate(config.input):
        if not item.name:
            continue
        tensor = known.get(item.name)
        if tensor is None:
            unknown += 1
            findings.add(
                "onnx-input-unknown",
                f"unexpected inference input '{item.name}', allowed inputs are: {text_list(sorted(known))}",
                *view.where("input", index, "name"),
            )
        else:
            _check_input(view, tensor, index, item, findings)
    batch_targets = [n for item in config.batch_input for n in item.target_name]
    controls = [c.name for c in config.sequence_batching.control_input]
    states = [s.input_name for s in config.sequence_batching.state]
    given = {i.name for i in config.input} | {*batch_targets, *controls, *states}
    missing = [t.name for t in graph.inputs if t.name not in given]
    if config.max_batch_size > 0 and any(i.optional for i in config.input):
        return
    expected = (
        sum(not i.optional for i in config.input)
        + len(config.batch_input)
        + sum(len(c.control) for c in config.sequence_batching.control_input)
        + len(states)
    )
    if len(missing) > unknown or (not missing and not unknown and expected != len(graph.inputs)):
        findings.add(
            "onnx-input-count",
            f"configuration expects {expected} inputs, model provides {len(graph.inputs)}",
            *view.where("input"),
            evidence=[f"not in the configuration: {text_list(missing)}"] if missing else [],
        )


def _check_input(view: View, tensor: OnnxTensor, index: int, item: Any, findings: Findings) -> None:
    largest = view.config.max_batch_size
    if item.optional and (largest > 0 or item.allow_ragged_batch):
        findings.add(
            "onnx-optional-input",
            f"optional input '{item.name}' is not supported for models that support "
            f"{'batching' if largest > 0 else 'ragged batches'}",
            *view.where("input", index, "optional"),
        )
        return
    _check_type(view, "input", index, item, tensor, findings)
    if item.allow_ragged_batch:
        if tensor.shape != (-1,):
            findings.add(
                "onnx-ragged-shape",
                f"ragged input '{item.name}' needs the shape [-1], model provides {_shown(tensor.shape)}",
                *view.where("input", index, "allow_ragged_batch"),
            )
        return
    dims, place = _dims(view, "input", index, item)
    if dims is None or tensor.kind != "tensor":
        return
    if _check_batch(view, item, tensor, dims, place, findings):
        want = list(tensor.shape or ())[1 if largest > 0 else 0 :]
        if len(want) != len(dims) or any(w not in (-1, h) for w, h in zip(want, dims, strict=True)):
            findings.add("onnx-input-dims", _dims_message("input", item, tensor, dims, largest), *place)


def _check_output(view: View, graph: OnnxInterface, index: int, item: Any, findings: Findings) -> None:
    if not item.name:
        return
    tensor = next((t for t in graph.outputs if t.name == item.name), None)
    if tensor is None:
        findings.add(
            "onnx-output-unknown",
            f"unexpected inference output '{item.name}', allowed outputs are: "
            f"{text_list(sorted(t.name for t in graph.outputs))}",
            *view.where("output", index, "name"),
        )
        return
    _check_type(view, "output", index, item, tensor, findings)
    dims, place = _dims(view, "output", index, item)
    scattered = any(item.name in b.target_name for b in view.config.batch_output)
    if dims is None or scattered or tensor.kind not in ("tensor", "untyped"):
        return
    largest = view.config.max_batch_size
    if not _check_batch(view, item, tensor, dims, place, findings):
        return
    want = list(tensor.shape or ())[1 if largest > 0 else 0 :]
    if (
        len(want) != len(dims)
        or any(w not in (-1, h) for w, h in zip(want, dims, strict=True))
        or (want != dims and tensor.name in graph.inferred and _plain(graph))
    ):
        findings.add("onnx-output-dims", _dims_message("output", item, tensor, dims, largest), *place)
    elif want != dims:
        findings.add(
            "onnx-output-dims-unsure",
            f"output '{item.name}' has dims {dims}, the graph declares {want}",
            *place,
        )


def _check_batch(
    view: View,
    item: Any,
    tensor: OnnxTensor,
    dims: Sequence[int],
    place: tuple[str, int | None, int | None],
    findings: Findings,
) -> bool:
    """Scalars and batch axes; whether the remaining dims are to be compared."""
    if view.config.max_batch_size > 0 and tensor.shape == ():
        findings.add(
            "onnx-not-batchable",
            f"tensor '{item.name}' has no axes in the graph, so a batch of it cannot be split",
            *place,
        )
        return False
    if not tensor.shape:
        if any(d != 1 for d in dims):
            findings.add(
                "onnx-scalar-dims",
                f"scalar tensor '{item.name}' should only have 1 in its dims, which are {list(dims)}",
                *place,
            )
        return False
    if view.config.max_batch_size > 0 and tensor.shape[0] != -1:
        findings.add(
            "onnx-not-batchable",
            f"tensor '{item.name}': for the model to support batching the first dimension must be -1; the "
            f"model has {_shown(tensor.shape)}",
            *place,
        )
        return False
    return True


def _check_type(view: View, kind: str, index: int, item: Any, tensor: OnnxTensor, findings: Findings) -> None:
    if tensor.kind == "tensor" and item.data_type and tensor.elem in TYPES:
        has = enum_name(item, "data_type")
        if has != TYPES[tensor.elem]:
            findings.add(
                "onnx-type-mismatch",
                f"configuration expects datatype {has} for {kind} '{item.name}', model provides "
                f"{TYPES[tensor.elem]}",
                *view.where(kind, index, "data_type"),
            )


def _check_sequence_names(
    view: View, graph: OnnxInterface, findings: Findings, *, gives_inputs: bool
) -> None:
    config = view.config
    inputs = {t.name for t in (*graph.inputs, *graph.initial)}
    outputs = {t.name for t in graph.outputs}
    sequence: tuple[str | int, ...] = ("sequence_batching", 0)
    named: list[tuple[str, tuple[str | int, ...], set[str], str]] = []
    for index, control in enumerate(config.sequence_batching.control_input):
        named.append((control.name, (*sequence, "control_input", index, "name"), inputs, "input"))
    for index, state in enumerate(config.sequence_batching.state):
        named.append((state.input_name, (*sequence, "state", index, "input_name"), inputs, "input"))
        named.append((state.output_name, (*sequence, "state", index, "output_name"), outputs, "output"))
    if gives_inputs:
        for index, item in enumerate(config.batch_input):
            for number, name in enumerate(item.target_name):
                named.append((name, ("batch_input", index, "target_name", number), inputs, "input"))
    for name, path, known, what in named:
        if name and name not in known:
            findings.add(
                f"onnx-{what}-unknown",
                f"the model does not provide the {what} '{name}'; it has {text_list(sorted(known))}",
                *view.where(*path),
            )


def _dims(
    view: View, kind: str, index: int, item: Any
) -> tuple[list[int] | None, tuple[str, int | None, int | None]]:
    """The dims that the model sees, and where they stand; ``None`` where they are left out."""
    if item.HasField("reshape"):
        return list(item.reshape.shape), view.where(kind, index, "reshape")
    return list(item.dims) or None, view.where(kind, index, "dims")


def _dims_message(kind: str, item: Any, tensor: OnnxTensor, dims: Sequence[int], largest: int) -> str:
    full = [-1, *dims] if largest > 0 else list(dims)
    batch = " with the batch axis that max_batch_size adds" if largest > 0 else ""
    return (
        f"{kind} '{item.name}': the model expects {_shown(tensor.shape)}, the configuration says "
        f"{_shown(full)}{batch}"
    )


def _shown(shape: Sequence[int] | None) -> str:
    return "no shape" if shape is None else f"[{', '.join(map(str, shape))}]"
