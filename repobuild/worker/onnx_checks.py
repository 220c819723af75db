"""Reads an ONNX file, names what is wrong with it, and sets aside what Triton cannot carry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repobuild.errors import Evidence, InputInvalid, evidence
from repobuild.graph.external import ExternalDataUnsafe, all_tensors, check_external, without_data
from repobuild.graph.walk import all_nodes
from repobuild.tensors import DType
from repobuild.worker.loading import first_line

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

KINDS = {
    "sequence_type": "a sequence",
    "map_type": "a map",
    "optional_type": "an optional value (optional type)",
    "sparse_tensor_type": "a sparse tensor",
    "opaque_type": "an opaque value",
}


def parse(path: Path, given: str) -> ModelProto:
    """The file as a message, external data left on the disk.

    Raises:
        InputInvalid: It is cut off, is no ONNX model, is not valid, or its external data is missing or leads
            out of the model's folder.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        proto = onnx.load(str(path), load_external_data=False)
    except DecodeError as problem:
        told = f"it has {path.stat().st_size} bytes and does not parse: {first_line(problem)}"
        raise damaged(given, "it is truncated or damaged", told) from None
    if not proto.graph.node and not proto.graph.output:
        raise damaged(given, "it holds no graph", f"IR version {proto.ir_version}")
    check_data(proto, path.parent, given)
    return proto


def check_data(proto: ModelProto, folder: Path, given: str) -> None:
    """Make sure that external data can be used.

    Raises:
        InputInvalid: It is missing, too short, or leads out of the model's folder.
    """
    try:
        check_external(proto, folder)
    except ExternalDataUnsafe as problem:
        raise external_unusable(given, problem.lines) from None


def external_unusable(given: str, lines: Sequence[str]) -> InputInvalid:
    """The error for external data that is not there as the file says."""
    return InputInvalid(
        "external-data",
        f"the external data of {given} cannot be used",
        tuple(Evidence(line, file=given) for line in lines),
        "keep the data files beside the ONNX file, under the names that it has for them",
    )


def damaged(given: str, what: str, line: str) -> InputInvalid:
    """The error for a file that is no whole ONNX model."""
    return InputInvalid(
        "model-damaged",
        f"{given} is not a valid ONNX file: {what}",
        (Evidence(line, file=given),),
        "fetch or export the file again",
    )


def check_versions(proto: ModelProto, given: str) -> None:
    """Refuse what the installed onnx does not know, and graphs that are not valid.

    Raises:
        InputInvalid: An IR or opset version is unknown, or the checker finds a fault.
    """
    import onnx

    if proto.ir_version > onnx.IR_VERSION:
        raise InputInvalid(
            "model-too-new",
            f"{given} has IR version {proto.ir_version}, which is not known here",
            (Evidence(f"onnx {onnx.__version__} knows IR version {onnx.IR_VERSION} at most", file=given),),
            "export it with an older version of the exporter, or upgrade onnx and onnxruntime",
        )
    newest = onnx.defs.onnx_opset_version()
    for entry in proto.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version > newest:
            raise InputInvalid(
                "model-too-new",
                f"{given} has opset {entry.version}, which is not known here",
                (Evidence(f"onnx {onnx.__version__} knows opset {newest} at most", file=given),),
                "export it with a lower opset, or upgrade onnx and onnxruntime",
            )
    try:
        onnx.checker.check_model(_with_shapes(without_data(proto)))
    except onnx.checker.ValidationError as problem:
        lines = [t.strip() for t in str(problem).splitlines() if t.strip()]
        raise InputInvalid(
            "model-invalid",
            f"{given} is not a valid ONNX model",
            tuple(Evidence(line[:400], file=given) for line in lines[:3]),
            "export it again; the tool that edited it left it broken",
        ) from None


def _with_shapes(proto: ModelProto) -> ModelProto:
    """The same graph for ONNX's checker, which wants a shape that ONNX Runtime does not need."""
    bare = [
        v.name
        for v in (*proto.graph.input, *proto.graph.output)
        if v.type.HasField("tensor_type") and not v.type.tensor_type.HasField("shape")
    ]
    if not bare:
        return proto
    copy = type(proto)()
    copy.CopyFrom(proto)
    for value in (*copy.graph.input, *copy.graph.output):
        if value.name in bare:
            value.type.tensor_type.shape.SetInParent()
    return copy


def true_inputs(proto: ModelProto, kept: Sequence[str], given: str) -> Iterator[str]:
    """Take initialisers out of the inputs, but for those that the recipe keeps; those lose their value.

    Returns:
        Notes.

    Raises:
        InputInvalid: The recipe keeps a name that is no such input.
    """
    weights = {t.name: t for t in proto.graph.initializer}
    listed = [v.name for v in proto.graph.input if v.name in weights]
    for name in kept:
        if name not in weights:
            raise InputInvalid(
                "option-unfit",
                f"{given} has no initialiser '{name}'",
                (
                    Evidence(
                        f"listed as inputs are {', '.join(listed[:12]) or 'none'}", key="export.keep_inputs"
                    ),
                ),
                "name an initialiser that is to stay an input",
            )
        if name not in listed:
            value = proto.graph.input.add()
            value.name = name
            value.type.tensor_type.elem_type = weights[name].data_type
            for size in weights[name].dims:
                value.type.tensor_type.shape.dim.add().dim_value = size
        proto.graph.initializer.remove(weights[name])
    gone = [n for n in listed if n not in kept]
    for value in [v for v in proto.graph.input if v.name in gone]:
        proto.graph.input.remove(value)
    if gone:
        more = f" and {len(gone) - 6} more" if len(gone) > 6 else ""
        yield (
            f"initialisers listed as inputs became constants: {', '.join(gone[:6])}{more}"
            " (export: keep_inputs keeps one)"
        )


def tensor_outputs(proto: ModelProto, notes: list[str], given: str) -> list[str]:
    """The outputs that are tensors; others are taken off the graph, and a note says so.

    Raises:
        InputInvalid: No output is a tensor.
    """
    from repobuild.graph.normal import remove_zipmap

    notes.extend(
        f"output '{node.output[0]}' is a tensor in place of the maps that ZipMap makes of it"
        for node in proto.graph.node
        if (node.domain, node.op_type) == ("ai.onnx.ml", "ZipMap")
    )
    remove_zipmap(proto)
    strange = {v.name: what for v in proto.graph.output if (what := uncarried(v))}
    kept = [v.name for v in proto.graph.output if v.name not in strange]
    told = [f"output '{name}' is {what}, which Triton does not carry" for name, what in strange.items()]
    if not kept:
        raise InputInvalid(
            "output-kind",
            f"no output of {given} is a tensor",
            evidence(told),
            "export the model so that it answers with tensors",
        )
    for value in [v for v in proto.graph.output if v.name in strange]:
        proto.graph.output.remove(value)
    notes.extend(f"{line}; it was left out" for line in told)
    return kept


def uncarried(value: ValueInfoProto) -> str:
    """What Triton does not carry about an output, empty for nothing; one of no type is seen when it comes."""
    from onnx import TensorProto

    kind = value.type.WhichOneof("value") or "tensor_type"
    if kind in KINDS:
        return KINDS[kind]
    number = value.type.tensor_type.elem_type
    if number == TensorProto.UNDEFINED:
        return ""
    try:
        DType.of_onnx(number)
    except ValueError:
        return f"of type {_type_name(number)}"
    return ""


def _type_name(number: int) -> str:
    from onnx import TensorProto

    known = {v: k for k, v in TensorProto.DataType.items()}
    return str(known.get(number, f"number {number}"))


def carried(value: ValueInfoProto, given: str) -> tuple[DType, list[int | str] | None]:
    """Type and shape of an input; a label for a free axis, and no shape where the file says none.

    Raises:
        InputInvalid: Triton cannot carry it.
    """
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise _uncarried(value, KINDS.get(kind or "", "of no type"), given)
    tensor = value.type.tensor_type
    try:
        dtype = DType.of_onnx(tensor.elem_type)
    except ValueError:
        what = f"of type {_type_name(tensor.elem_type)}"
        raise _uncarried(value, what, given) from None
    if not tensor.HasField("shape"):
        return dtype, None
    shape: list[int | str] = []
    for axis, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value"):
            if dim.dim_value == 0:
                raise _uncarried(value, f"empty: axis {axis} has size 0 (zero)", given)
            shape.append(dim.dim_value if dim.dim_value > 0 else f"{value.name}:{axis}")
        else:
            shape.append(dim.dim_param or f"{value.name}:{axis}")
    return dtype, shape


def _uncarried(value: Any, what: str, given: str) -> InputInvalid:
    return InputInvalid(
        "input-kind",
        f"input '{value.name}' of {given} is {what}, which Triton cannot carry",
        (Evidence(f"input '{value.name}' is {what}", file=given),),
        "take the input out of the model, or give it another type before it is exported",
    )


def unknown_operators(proto: ModelProto) -> list[str]:
    """Operators of domains that ONNX itself does not define."""
    import onnx

    known = {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft", "com.ms.internal.nhwc"}
    local = {(f.domain, f.name) for f in proto.functions}
    del onnx
    found = {
        f"operator {n.op_type} of domain {n.domain}"
        for n in all_nodes(proto)
        if n.domain not in known and (n.domain, n.op_type) not in local
    }
    return sorted(found)


def float_types(proto: ModelProto) -> list[str]:
    """Floating-point types in which the graph computes: of its weights, inputs, outputs and casts."""
    from onnx import TensorProto

    names: dict[int, str] = {
        TensorProto.FLOAT: "float32",
        TensorProto.DOUBLE: "float64",
        TensorProto.FLOAT16: "float16",
        TensorProto.BFLOAT16: "bfloat16",
    }
    found = {t.data_type for t in all_tensors(proto)}
    found |= {v.type.tensor_type.elem_type for v in (*proto.graph.input, *proto.graph.output)}
    found |= {a.i for n in all_nodes(proto) if n.op_type == "Cast" for a in n.attribute if a.name == "to"}
    return sorted(names[kind] for kind in found if kind in names)
