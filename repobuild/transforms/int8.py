"""int8 by ONNX Runtime's quantiser (``onnxruntime.quantization``), dynamic or static.

Dynamic: weights of MatMul, Gemm, Conv, LSTM and Gather are int8 in the file; inputs are measured and
quantised at run time, so nothing is calibrated. Static: inputs and outputs of nodes are quantised with ranges
seen on the requests, in the QDQ format, which every execution provider reads.

Choices, after ONNX Runtime's guide (``quantize_static``'s docstring and
https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html):

- uint8 activations and int8 weights, one scale a channel;
- weights in 7 bits (``reduce_range``): x86 processors without VNNI add pairs of 8-bit products in 16 bits,
  which saturates, so that a model proven on one machine would answer otherwise on another;
- static leaves in float32 what reaches 1e4 and beyond (attention masks of -3.4e38, for one): 256 steps over
  such a range leave nothing of the other values; and products of two activations, and operators that gain
  nothing (Softmax, normalisations, Sigmoid).
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from repobuild.errors import ConversionFailed, InputInvalid, RepobuildError, evidence
from repobuild.graph.normal import strip_metadata
from repobuild.tensors import Array, Batch
from repobuild.transforms.casting import readers
from repobuild.transforms.checking import check_types
from repobuild.transforms.element_types import element_types
from repobuild.transforms.files import GraphFile, opened, size_of
from repobuild.transforms.interface import Applied
from repobuild.transforms.measure import measure
from repobuild.transforms.nodes import opset_of
from repobuild.transforms.session import feed
from repobuild.transforms.staging import stage
from repobuild.transforms.tools import overheard, tool
from repobuild.transforms.writing import Writer, all_or_nothing
from repobuild.worker.onnx_session import open_session

if TYPE_CHECKING:
    from onnx import ModelProto

Mode = Literal["dynamic", "static"]

LOWEST_OPSET: Mapping[Mode, int] = {"dynamic": 11, "static": 13}
"""First opset of DynamicQuantizeLinear, and of DequantizeLinear with one scale a channel."""
STATIC_OPERATORS = (
    "Add", "AveragePool", "Clip", "Concat", "Conv", "ConvTranspose", "Flatten", "Gather", "Gemm",
    "GlobalAveragePool", "LeakyRelu", "MatMul", "MaxPool", "Pad", "Relu", "Reshape", "Resize", "Slice",
    "Split", "Squeeze", "Transpose", "Unsqueeze",
)  # fmt: skip
"""Operators that static quantisation takes on, if what feeds them is quantised."""
DYNAMIC_OPERATORS = (
    "Attention",
    "Conv",
    "EmbedLayerNormalization",
    "Gather",
    "Gemm",
    "LSTM",
    "MatMul",
    "Transpose",
)
"""Operators that dynamic quantisation takes on."""
_RUNTIME_ONLY = ("Attention", "EmbedLayerNormalization")
FAR = 1e4
"""A tensor that reaches it is not quantised."""
LOWEST_IR = 4
"""The first IR version in which an initialiser, such as a scale, need not be an input as well."""
BATCH_NOTE = (
    "dynamic quantisation takes one scale over a whole batch, so an answer varies a little with the "
    "rows that it is batched with; static quantisation does not"
)
_EXAMPLES = (
    "https://github.com/microsoft/onnxruntime-inference-examples/blob/main/quantization/image_classification"
    "/cpu/ReadMe.md"
)
# The quantiser asks for shape inference and optimisation beforehand, and tells by a mark in the
# metadata whether a graph had them. Graphs come here optimised, unless the recipe wants them as they are.
_ADVICE = frozenset(
    {
        f"Please consider to run pre-processing before quantization. Refer to example: {_EXAMPLES}",
        f"Please consider pre-processing before quantization. See {_EXAMPLES}",
    }
)
_QUANTISED = (
    "ConvInteger", "DequantizeLinear", "DynamicQuantizeLSTM", "DynamicQuantizeLinear", "MatMulInteger",
    "QAttention", "QEmbedLayerNormalization", "QuantizeLinear",
)  # fmt: skip


class Int8:
    """Quantises weights, and the arithmetic on them, to 8 bits.

    Args:
        mode: ``dynamic`` or ``static``.
        reduce_range: Whether weights use 7 bits, see the module.
    """

    def __init__(self, mode: Mode, *, reduce_range: bool = True) -> None:
        self.name = f"int8-{mode}"
        self._mode: Mode = mode
        self._reduce_range = reduce_range

    def apply(self, model: Path, requests: Sequence[Batch], to: Path) -> Applied:
        """See :meth:`repobuild.transforms.interface.Transform.apply`; static calibrates on the requests.

        Raises:
            ConversionFailed: ``nothing-to-convert``: no node can be quantised; ``opset-conversion``: the
                graph's opset is too low; ``quantiser-failed``: the quantiser's own error is the evidence.
            InputInvalid: ``samples-needed``: static, and no request has rows.
        """
        before = size_of(model)
        with opened(model) as source, tempfile.TemporaryDirectory(dir=to.parent, prefix=".int8-") as scratch:
            _demand_opset(source.proto, self._mode)
            notes = [BATCH_NOTE] if self._mode == "dynamic" else []
            staged = stage(source, Path(scratch))
            excluded = _of_other_domains(source.proto)
            useful = [r for r in requests if all(array.size for array in r.values())]
            if self._mode == "static":
                notes += _empty_requests(requests, useful)
                far, why = _left_alone(source, requests)
                excluded += far
                notes += why
            result = Path(scratch) / "quantised.onnx"
            said = self._quantise(staged, useful, excluded, result, large=source.external or source.spilled)
            notes += _once(said)
            count = _finish(source, result, to, notes)
        with all_or_nothing(to):
            check_types(to)
            open_session(to)
        after = size_of(to)
        if after.bytes >= before.bytes:
            notes.append(f"the file did not get smaller: {before.bytes} bytes before, {after.bytes} after")
        made = ", ".join(f"{number} {kind}" for kind, number in sorted(count.items()))
        bits = "7 bits of weights" if self._reduce_range else "8 bits of weights"
        return Applied(
            f"quantised ({self._mode}, {bits}): {made}",
            tuple(notes),
            (tool("onnx"), tool("onnxruntime")),
            before,
            after,
        )

    def _quantise(
        self, model: Path, requests: Sequence[Batch], excluded: list[str], to: Path, *, large: bool
    ) -> list[str]:
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

        shared: dict[str, Any] = {
            "per_channel": True,
            "reduce_range": self._reduce_range,
            "weight_type": QuantType.QInt8,
            "nodes_to_exclude": excluded,
            "use_external_data_format": large,
        }
        try:
            with overheard() as said:
                if self._mode == "dynamic":
                    quantize_dynamic(model, to, op_types_to_quantize=list(DYNAMIC_OPERATORS), **shared)
                else:
                    quantize_static(
                        model,
                        to,
                        _reader(requests),
                        quant_format=QuantFormat.QDQ,
                        activation_type=QuantType.QUInt8,
                        op_types_to_quantize=list(STATIC_OPERATORS),
                        **shared,
                    )
        except RepobuildError:
            raise
        except Exception as problem:
            lines = str(problem).strip().splitlines()[:3] or [type(problem).__name__]
            raise ConversionFailed(
                "quantiser-failed",
                f"ONNX Runtime's quantiser fails on the graph ({type(problem).__name__})",
                evidence(lines),
                "try the other of dynamic and static, or leave precision: int8 out for this model",
            ) from problem
        return said


def _demand_opset(proto: ModelProto, mode: Mode) -> None:
    opset = opset_of(proto)
    if opset < LOWEST_OPSET[mode]:
        raise ConversionFailed(
            "opset-conversion",
            f"{mode} quantisation needs opset {LOWEST_OPSET[mode]}, the graph has {opset}",
            evidence(["the operators that it puts in did not exist before"]),
            f"write export: {{opset: {LOWEST_OPSET[mode]}}} or higher",
        )


def _of_other_domains(proto: ModelProto) -> list[str]:
    """Nodes that the quantiser, which looks at operators' names alone, would take for others."""
    own = "com.microsoft"
    return [
        node.name
        for node in proto.graph.node
        if node.domain not in ("", "ai.onnx", own) or (node.op_type in _RUNTIME_ONLY and node.domain != own)
    ]


def _left_alone(source: GraphFile, requests: Sequence[Batch]) -> tuple[list[str], list[str]]:
    """Nodes that static quantisation must leave in float32, and notes on them."""
    found = readers(source.proto.graph)
    nodes = source.proto.graph.node
    ranges = measure(source, element_types(source), requests)
    far: dict[str, str] = {}
    for (path, name), seen in ranges.items():
        if path or not (seen.largest >= FAR or seen.broken):
            continue
        what = "NaN or infinity" if seen.broken else f"{seen.largest:.3g}"
        around = [key for key, _ in found.nodes.get((path, name), ())]
        around += [found.makers[path, name]] if (path, name) in found.makers else []
        for where, index in around:
            if not where:
                far.setdefault(
                    nodes[index].name,
                    f"{nodes[index].op_type} '{nodes[index].name}': '{name}' reaches {what}",
                )
    constant = {tensor.name for tensor in source.proto.graph.initializer}
    pairs = [n.name for n in nodes if n.op_type == "MatMul" and not constant & set(n.input)]
    notes = []
    if far:
        some = list(far.values())[:12]
        more = f"; and {len(far) - len(some)} more" if len(far) > len(some) else ""
        notes.append(f"{len(far)} nodes stay float32 for their values: {'; '.join(some)}{more}")
    if pairs:
        notes.append(f"{len(pairs)} MatMul of two activations stay float32")
    return sorted({*far, *pairs}), notes


def _empty_requests(requests: Sequence[Batch], useful: Sequence[Batch]) -> list[str]:
    if not useful:
        raise InputInvalid(
            "samples-needed",
            "without requests that hold rows, nothing can be calibrated",
            evidence([f"{len(requests)} requests, all of them without elements"]),
            "name samples in the recipe, or use dynamic quantisation",
        )
    if len(useful) < len(requests):
        return [f"{len(requests) - len(useful)} requests without elements took no part in the calibration"]
    return []


def _reader(requests: Sequence[Batch]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Requests(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = iter(requests)

        def get_next(self) -> dict[str, Array] | None:
            request = next(self._left, None)
            return None if request is None else feed(request)

    return Requests()


def _finish(source: GraphFile, result: Path, to: Path, notes: list[str]) -> Counter[str]:
    """Clean the quantiser's file, and write it where it is wanted; counts the operators that were put in."""
    was = Counter(n.op_type for n in source.proto.graph.node)
    opsets = {e.domain: e.version for e in source.proto.opset_import}
    with opened(result) as quantised:
        now = Counter(n.op_type for n in quantised.proto.graph.node)
        count = Counter({kind: now[kind] - was[kind] for kind in _QUANTISED if now[kind] > was[kind]})
        if not count:
            kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(was.items())) or "none"
            raise ConversionFailed(
                "nothing-to-convert",
                "no node of the graph can be quantised to int8",
                evidence([f"its nodes: {kinds}", *notes[:5]]),
                "leave precision: int8 out for this model",
            )
        proto = quantised.proto
        strip_metadata(proto)
        if proto.ir_version < LOWEST_IR:
            notes.append(f"the IR version was raised from {proto.ir_version} to {LOWEST_IR}")
            proto.ir_version = LOWEST_IR
        for entry in list(proto.opset_import):
            if entry.domain not in opsets and not any(n.domain == entry.domain for n in proto.graph.node):
                proto.opset_import.remove(entry)
            elif opsets.get(entry.domain, entry.version) != entry.version:
                notes.append(
                    f"the quantiser raised opset {opsets[entry.domain]} of {entry.domain or 'ai.onnx'} "
                    f"to {entry.version}"
                )
        domains = sorted({n.domain for n in proto.graph.node} - {*opsets, "", "ai.onnx"})
        if domains:
            notes.append(f"the graph now has operators of {', '.join(domains)}: only ONNX Runtime loads it")
        with Writer(quantised, to, external=source.external) as writer:
            writer.finish(proto)
    return count


def _once(said: Sequence[str]) -> list[str]:
    counted = Counter(stripped for line in said if (stripped := line.strip()) not in _ADVICE)
    return [
        f"the quantiser says: {line}{f' ({number} times)' if number > 1 else ''}"
        for line, number in counted.items()
    ]
