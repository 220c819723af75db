"""Brings an exporter's graph into the one form that is emitted.

Normal form: every output is a tensor (no ZipMap); the outputs are those the recipe asks for, under the
recipe's names, with at least two axes when batched; one opset import a domain; the graph is named after the
model; no documentation strings or exporter metadata; no dead nodes. Shapes are declared by
:func:`declare_shapes` once the outputs have been seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from repobuild.errors import ConversionFailed, evidence
from repobuild.graph.external import without_data
from repobuild.graph.outputs import PRODUCER, GraphPass
from repobuild.graph.versions import Unconvertible, converted
from repobuild.graph.walk import all_nodes, names_used, subgraphs
from repobuild.tensors import Signature, TensorSpec

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

IR_OF_OPSET = {
    7: 4, 8: 4, 9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10,
    22: 10, 23: 11, 24: 12, 25: 13, 26: 13, 27: 13, 28: 14,
}  # fmt: skip
"""IR version that came with each opset (onnx/onnx, docs/Versioning.md): the oldest runtimes that know the
opset also load this IR."""

OLDEST_IR = 4
"""Below it every initialiser would have to be an input too."""


def tensors_only(model: ModelProto, opset: int) -> ModelProto:
    """The exporter's model with tensor outputs only, at one opset.

    Args:
        model: The exporter's model; changed in place.
        opset: Opset of the default domain to raise the graph to, if it is lower.

    Raises:
        ConversionFailed: An operator has no form at that opset.
    """
    remove_zipmap(model)
    portable_locale(model)
    merge_opset_imports(model)
    return raise_opset(model, opset)


def normalise(model: ModelProto, name: str, passes: Sequence[GraphPass] = ()) -> None:
    """Apply the passes of normal form, in place.

    Args:
        model: A model with tensor outputs, see :func:`tensors_only`.
        name: Name for the graph.
        passes: Further passes, run before dead nodes are dropped.

    Raises:
        ConversionFailed: A pass cannot do its work on this graph.
    """
    for step in (*passes, drop_dead_nodes, merge_opset_imports, strip_metadata):
        step(model)
    model.graph.name = name


def finish(model: ModelProto, signature: Signature) -> None:
    """Declare types and shapes, and check the whole.

    Raises:
        ConversionFailed: The result is not valid ONNX.
    """
    import onnx

    declare_shapes(model, signature)
    try:
        onnx.checker.check_model(without_data(model))
    except onnx.checker.ValidationError as problem:
        raise ConversionFailed(
            "graph-invalid",
            "the exported graph is not valid ONNX",
            evidence(str(problem).strip().splitlines()[:3]),
            "this is a fault of the exporter; a newer version may have mended it",
        ) from problem


def remove_zipmap(model: ModelProto) -> None:
    """Let the tensor that feeds a ZipMap take its place.

    ZipMap makes a sequence of maps, which Triton's ONNX Runtime backend refuses to load.
    """
    for node in model.graph.node:
        if (node.domain, node.op_type) != ("ai.onnx.ml", "ZipMap"):
            continue
        node.domain, node.op_type = "", "Identity"
        del node.attribute[:]
        for value in model.graph.output:
            if value.name == node.output[0]:
                value.ClearField("type")  # it may be any float type; the finished graph declares it


def portable_locale(model: ModelProto) -> bool:
    """Let text be lowered in the locale that every image has.

    Exporters name ``en_US``, which minimal images lack, Triton's among them: ONNX Runtime then refuses the
    model (onnxruntime/core/providers/cpu/text/string_normalizer.cc). Case folding is the same in ``C.UTF-8``.

    Returns:
        Whether anything changed.
    """
    from onnx import helper

    changed = False

    for node in all_nodes(model):
        if node.op_type != "StringNormalizer":
            continue
        named = next((a for a in node.attribute if a.name == "locale"), None)
        if named is not None:
            if not named.s.startswith(b"en_US"):
                continue
            node.attribute.remove(named)
        node.attribute.append(helper.make_attribute("locale", "C.UTF-8"))
        changed = True
    return changed


def raise_opset(model: ModelProto, opset: int) -> ModelProto:
    """The model at a higher opset of the default domain; exporters name the lowest that their nodes need.

    Raises:
        ConversionFailed: ONNX's version converter cannot do it.
    """
    import onnx

    now = next((e.version for e in model.opset_import if e.domain == ""), 0)
    if now >= opset:
        return model
    if now == 0:
        model.opset_import.append(onnx.helper.make_opsetid("", opset))
        return model
    try:
        return converted(model, opset)
    except Unconvertible as problem:
        raise ConversionFailed(
            "opset-conversion",
            f"the graph cannot be brought from opset {now} to {opset}",
            evidence([str(problem)]),
            f"write export: {{opset: {max(now, 13)}}}",
        ) from problem


def to_opset(model: ModelProto, wanted: int | None, most: int) -> tuple[ModelProto, list[str]]:
    """The model at the opset that is wanted, or at the highest that is allowed, and what was decided.

    Args:
        model: The model.
        wanted: Opset of the default domain; ``None`` to keep the model's own.
        most: The highest that the target loads.

    Raises:
        ConversionFailed: An operator has no form at that opset.
    """
    merge_opset_imports(model)
    now = next((e.version for e in model.opset_import if e.domain == ""), 0)
    target = min(wanted or now or most, most)
    if target >= now:
        return raise_opset(model, target), []
    lower = _lowered(model, now, target)
    if wanted is not None and wanted < now:
        return lower, []
    return lower, [f"the graph was brought from opset {now} to {target}, the highest that the target loads"]


def _lowered(model: ModelProto, now: int, target: int) -> ModelProto:
    import onnx

    hint = (
        f"write export: {{opset: {now}}}, or leave opset out; a newer release under target: loads higher ones"
    )
    try:
        made = converted(model, target)
        onnx.checker.check_model(without_data(made))
    except (Unconvertible, onnx.checker.ValidationError) as problem:
        kinds = sorted({n.op_type for n in model.graph.node if _newer_than(n, target)})
        lines = [
            *(f"operator {k} is as the graph has it since an opset above {target}" for k in kinds),
            *str(problem).strip().splitlines()[:2],
        ]
        raise ConversionFailed(
            "opset-conversion",
            f"the graph cannot be brought from opset {now} down to {target}",
            evidence(lines),
            hint,
        ) from problem
    return made


def _newer_than(node: NodeProto, opset: int) -> bool:
    """Whether an operator of ONNX itself has no form as old as that."""
    import onnx

    if node.domain not in ("", "ai.onnx"):
        return False
    try:
        onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        return True
    return False


def drop_dead_nodes(model: ModelProto) -> None:
    """Remove nodes and initialisers that no output depends on."""
    graph = model.graph
    needed = {o.name for o in graph.output}
    kept: list[NodeProto] = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed.update(names_used(node))
    if len(kept) < len(graph.node):
        kept.reverse()
        copies = [_copy(node) for node in kept]
        del graph.node[:]
        graph.node.extend(copies)
    for tensor in [t for t in graph.initializer if t.name not in needed]:
        graph.initializer.remove(tensor)


def merge_opset_imports(model: ModelProto) -> None:
    """Import each domain once, at the highest version named, and set the IR version that goes with it."""
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        versions[domain] = max(versions.get(domain, 0), entry.version)
    del model.opset_import[:]
    for domain, version in sorted(versions.items()):
        entry = model.opset_import.add()
        entry.domain, entry.version = domain, version
    model.ir_version = IR_OF_OPSET.get(versions.get("", 0), max(model.ir_version, OLDEST_IR))


def strip_metadata(model: ModelProto) -> None:
    """Drop documentation, exporter properties and inferred shapes; they differ between machines or lie."""
    from repobuild import __version__

    model.producer_name, model.producer_version = PRODUCER, __version__
    model.domain, model.model_version, model.doc_string = "", 0, ""
    del model.metadata_props[:]
    _strip_graph(model.graph)
    for function in model.functions:
        function.doc_string = ""
        del function.metadata_props[:]
        del function.value_info[:]
        for node in function.node:
            _strip_node(node)


def declare_shapes(model: ModelProto, signature: Signature) -> None:
    """Declare the types and shapes of inputs and outputs as they are, free axes under readable names.

    Triton's ONNX Runtime backend requires output dims in config.pbtxt to equal those declared here.
    """
    declare_inputs(model, signature.inputs, batched=signature.batched)
    outputs = [_declared(s, batched=signature.batched) for s in signature.outputs]
    del model.graph.output[:]
    model.graph.output.extend(outputs)


def declare_inputs(model: ModelProto, inputs: Sequence[TensorSpec], *, batched: bool) -> None:
    """Declare types and shapes of the inputs only, and let the outputs declare no shape."""
    found = [_declared(s, batched=batched) for s in inputs]
    del model.graph.input[:]
    model.graph.input.extend(found)
    for value in model.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def _declared(spec: TensorSpec, *, batched: bool) -> ValueInfoProto:
    from onnx import TensorProto, helper

    axes = [
        d if d is not None else "batch" if axis == 0 and batched else f"{spec.name}_{axis}"
        for axis, d in enumerate(spec.shape)
    ]
    return helper.make_tensor_value_info(spec.name, getattr(TensorProto, spec.dtype.onnx), axes)


def _strip_graph(graph: GraphProto) -> None:
    graph.doc_string = ""
    del graph.value_info[:]
    del graph.metadata_props[:]
    for item in (*graph.input, *graph.output, *graph.initializer):
        item.doc_string = ""
        del item.metadata_props[:]
    for node in graph.node:
        _strip_node(node)


def _strip_node(node: NodeProto) -> None:
    """Exporters write paths and source lines of the user's code into every node."""
    node.doc_string = ""
    del node.metadata_props[:]
    for attribute in node.attribute:
        attribute.doc_string = ""
    for inner in subgraphs(node):
        _strip_graph(inner)


def _copy(node: NodeProto) -> NodeProto:
    from onnx import NodeProto

    copy = NodeProto()
    copy.CopyFrom(node)
    return copy
