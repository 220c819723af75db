"""Reads ONNX files of a repository, and lets inferred output shapes stand in for undeclared ones."""

from __future__ import annotations

from dataclasses import replace

from repobuild.lint.files import Entry, open_file, read_start
from repobuild.lint.finding import Findings
from repobuild.lint.inferred import LARGEST_FILE, ShapeInference
from repobuild.lint.onnx_file import Damaged, OnnxInterface, OnnxTensor, TooLarge, read_interface

TYPES = {
    1: "TYPE_FP32", 2: "TYPE_UINT8", 3: "TYPE_INT8", 4: "TYPE_UINT16", 5: "TYPE_INT16", 6: "TYPE_INT32",
    7: "TYPE_INT64", 8: "TYPE_STRING", 9: "TYPE_BOOL", 10: "TYPE_FP16", 11: "TYPE_FP64", 12: "TYPE_UINT32",
    13: "TYPE_UINT64", 16: "TYPE_BF16",
}  # fmt: skip
"""Triton's types by ``TensorProto.DataType`` (onnxruntime_utils.cc, ``ConvertFromOnnxDataType``)."""


def read_onnx(entry: Entry, findings: Findings, inference: ShapeInference) -> OnnxInterface | None:
    """Read a model file's interface; damage becomes a finding, and ``None``."""
    if (read_start(entry, 8) or b"")[4:] == b"ORTM":
        # ONNX Runtime's own format (core/flatbuffers/schema/ort.fbs); nothing is known of it here.
        return None
    try:
        with open_file(entry) as file:
            found = read_interface(file)
    except Damaged as problem:
        rule = "onnx-truncated" if problem.truncated else "onnx-invalid"
        findings.add(rule, f"{entry.name}: {problem}", entry.relative)
        return None
    except TooLarge:
        findings.add("not-checked", f"{entry.name} has more parts than lint reads", entry.relative)
        return None
    except OSError as problem:
        findings.add("not-checked", f"{entry.name} cannot be read: {problem.strerror}", entry.relative)
        return None
    open_axes = any(t.shape is None or -1 in t.shape for t in found.outputs)
    if open_axes and entry.size <= LARGEST_FILE:
        inferred = inference.outputs(entry.path)
        found.inferred = {name for name, shape in inferred.items() if shape is not None}
        found.outputs = [_merged(t, inferred.get(t.name)) for t in found.outputs]
    return found


def _merged(tensor: OnnxTensor, inferred: list[int] | None) -> OnnxTensor:
    """A declared shape with inferred sizes on its free axes, as ONNX Runtime merges them."""
    if tensor.kind not in ("tensor", "untyped") or inferred is None:
        return tensor
    if tensor.shape is None:
        return replace(tensor, shape=tuple(inferred), symbols=("",) * len(inferred))
    if len(inferred) != len(tensor.shape):
        return tensor
    shape = tuple(i if d == -1 else d for d, i in zip(tensor.shape, inferred, strict=True))
    return replace(tensor, shape=shape)
