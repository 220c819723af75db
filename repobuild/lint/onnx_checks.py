"""ONNX files by themselves: opsets, operators, tensor kinds, and the files that their weights lie in."""

from __future__ import annotations

from repobuild.lint.files import Entry
from repobuild.lint.finding import Findings
from repobuild.lint.model import Model, View, enum_name, text_list
from repobuild.lint.onnx_file import OnnxInterface
from repobuild.lint.onnx_read import TYPES
from repobuild.releases import Release

KNOWN_DOMAINS = (
    "", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "ai.onnx.preview", "com.microsoft",
    "com.microsoft.nchwc", "com.microsoft.experimental", "com.microsoft.dml", "com.ms.internal.nhwc",
    "org.pytorch.aten",
)  # fmt: skip
_CLASSIC = ("TreeEnsemble", "SVM", "LinearClassifier", "LinearRegressor", "TfIdfVectorizer")
_HEAVY = (
    "MatMul",
    "Gemm",
    "Conv",
    "LSTM",
    "GRU",
    "RNN",
    "Einsum",
    "Attention",
    "QLinearConv",
    "MatMulInteger",
)


def check_release(
    entry: Entry, graph: OnnxInterface, view: View, release: Release, findings: Findings
) -> None:
    """Check the file itself: opsets, IR version, domains, tensor kinds."""
    file, target = entry.relative, f"Triton {release.name} (ONNX Runtime {release.onnxruntime})"
    for domain, newest in (("", release.opset), ("ai.onnx.ml", release.ml_opset)):
        opset = graph.opsets.get(domain, 0)
        if opset > newest:
            findings.add(
                "onnx-opset-newer",
                f"the graph has opset {opset} of {domain or 'ai.onnx'}; {target} loads up to {newest}",
                file,
            )
    if graph.ir > release.ir:
        findings.add(
            "onnx-ir-newer", f"the file has IR version {graph.ir}; {target} loads up to {release.ir}", file
        )
    if 0 < graph.opsets.get("", 0) < 7:
        findings.add("onnx-opset-old", f"the graph has opset {graph.opsets['']}", file)
    if not view.config.model_operations.op_library_filename:
        foreign = {o for o in graph.operators if o[0] not in KNOWN_DOMAINS and o[0] not in graph.functions}
        for domain in sorted({d for d, _ in foreign}):
            names = sorted(n for d, n in foreign if d == domain)
            findings.add(
                "onnx-domain-unknown",
                f"ONNX Runtime has no operators of the domain '{domain}'",
                file,
                evidence=[f"the graph uses {text_list(names)}"],
            )
    for what, listed in (("input", (*graph.inputs, *graph.initial)), ("output", graph.outputs)):
        for tensor in listed:
            if tensor.kind not in ("tensor", "untyped"):
                findings.add("onnx-not-tensor", f"{what} '{tensor.name}' is a {tensor.kind}", file)
            elif tensor.kind == "tensor" and tensor.elem not in TYPES and tensor.elem:
                findings.add(
                    "onnx-type-unserved",
                    f"{what} '{tensor.name}' has ONNX's element type {tensor.elem}",
                    file,
                )
            elif tensor.elem == 16:
                findings.add("onnx-bf16", f"{what} '{tensor.name}' is BF16", file)
    _check_gpu(graph, view, findings)


def check_external(model: Model, entry: Entry, graph: OnnxInterface, findings: Findings) -> None:
    """Check the files in which the graph's weights lie."""
    folder = entry.relative.split("/")[:-1]
    # <model>/<version>: nothing may lie outside of it, also when the model is a folder in it.
    inside = len(model.folder.relative.split("/")) + 1
    for data in graph.external.values():
        said = f"weights in '{data.location}'"
        parts = list(folder)
        steps = data.location.replace("\\", "/").split("/")
        if data.location.startswith(("/", "\\")) or data.location[1:3] in (":\\", ":/"):
            findings.add("external-absolute", f"{said} are named by an absolute path", entry.relative)
            continue
        escaped = False
        for step in steps:
            if step == "..":
                parts = parts[:-1]
                escaped = escaped or len(parts) < inside
            elif step not in ("", "."):
                parts.append(step)
        if escaped:
            findings.add("external-escapes", f"{said} lie outside the version folder", entry.relative)
            continue
        found = model.tree.entry(*parts)
        if found is None or found.kind == "broken" or not data.location:
            findings.add("external-missing", f"{said} are not there", entry.relative)
        elif found.kind == "outside" or (found.link and _leaves(model, entry, found)):
            findings.add("external-escapes", f"{said} are a link out of the version folder", entry.relative)
        elif not found.is_file:
            findings.add("external-missing", f"{said} are no regular file", entry.relative)
        elif found.size < data.end:
            findings.add(
                "external-short",
                f"{said} need {data.end} bytes, the file has {found.size}",
                entry.relative,
            )


def _leaves(model: Model, entry: Entry, found: Entry) -> bool:
    version = entry.path
    while version.parent != model.folder.path and version != version.parent:
        version = version.parent
    real = found.path.resolve()
    return version.resolve() not in real.parents


def _check_gpu(graph: OnnxInterface, view: View, findings: Findings) -> None:
    names = {name for _, name in graph.operators}
    if not any(n.startswith(_CLASSIC) for n in names) or names & set(_HEAVY):
        return
    for index, group in enumerate(view.config.instance_group):
        if enum_name(group, "kind") == "KIND_GPU":
            findings.add(
                "instance-gpu-unused",
                "KIND_GPU for a graph that ONNX Runtime computes on the CPU",
                *view.where("instance_group", index, "kind"),
            )
