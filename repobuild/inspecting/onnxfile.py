"""ONNX files: read as protobuf, never loaded into a runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repobuild.errors import Evidence, InputInvalid
from repobuild.inspecting.interface import Inspection
from repobuild.interrupts import import_whole

SHOWN_OPERATORS = 40


def inspect_onnx(path: Path, common: dict[str, Any]) -> Inspection:
    """What an ONNX file says of itself.

    Args:
        path: The file.
        common: Facts of every file, shown first.

    Raises:
        InputInvalid: ``model-damaged``: it is no ONNX model.
    """
    import_whole(["numpy", "onnx"])
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(str(path), load_external_data=False)
    except (DecodeError, ValueError, RecursionError) as problem:
        raise _damaged(path, str(problem)) from None
    if not model.graph.node and not model.graph.output:
        raise _damaged(path, "it has neither nodes nor outputs")
    graph = model.graph
    constants = {i.name for i in graph.initializer}
    counts = Counter(f"{n.domain or 'ai.onnx'}.{n.op_type}" for g in _graphs(graph) for n in g.node)
    external, strays = _external(graph, path)
    facts = {
        **common,
        "ir_version": model.ir_version,
        "opsets": {o.domain or "ai.onnx": o.version for o in model.opset_import},
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "inputs": [_tensor(i) for i in graph.input if i.name not in constants],
        "outputs": [_tensor(o) for o in graph.output],
        "operators": dict(counts.most_common(SHOWN_OPERATORS)),
        "nodes": sum(counts.values()),
        "initializers": len(graph.initializer),
        "functions": len(model.functions),
        "external_data": external,
        "metadata": {p.key: p.value for p in model.metadata_props},
    }
    remarks = [f"external data: {s}" for s in strays]
    if len(counts) > SHOWN_OPERATORS:
        remarks.append(f"{len(counts)} kinds of operators; the {SHOWN_OPERATORS} most frequent are listed")
    return Inspection(str(path), "onnx", facts, tuple(remarks))


def _graphs(graph: Any) -> Iterator[Any]:
    """A graph and those inside its nodes, without recursion."""
    waiting = [graph]
    while waiting:
        here = waiting.pop()
        yield here
        for node in here.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    waiting.append(attribute.g)
                waiting.extend(attribute.graphs)


def _tensor(info: Any) -> dict[str, Any]:
    from onnx import TensorProto

    which = info.type.WhichOneof("value")
    if which != "tensor_type":
        return {"name": info.name, "type": (which or "unknown").removesuffix("_type"), "shape": None}
    kind = info.type.tensor_type
    shape = (
        [d.dim_value if d.HasField("dim_value") else d.dim_param or -1 for d in kind.shape.dim]
        if kind.HasField("shape")
        else None
    )
    known = TensorProto.DataType.DESCRIPTOR.values_by_number.get(kind.elem_type)
    return {"name": info.name, "type": known.name if known else str(kind.elem_type), "shape": shape}


def _external(graph: Any, path: Path) -> tuple[dict[str, int | None], list[str]]:
    """``{file: bytes}`` of external data, and what is wrong; names outside the folder are not looked at."""
    sizes: dict[str, int | None] = {}
    wrong = []
    for here in _graphs(graph):
        for tensor in here.initializer:
            location = next((e.value for e in tensor.external_data if e.key == "location"), None)
            if location is None or location in sizes:
                continue
            inside = not Path(location).is_absolute() and ".." not in Path(location).parts
            file = path.parent / location
            sizes[location] = file.stat().st_size if inside and file.is_file() else None
            if not inside:
                wrong.append(f"'{location}' leads out of the model's folder")
            elif sizes[location] is None:
                wrong.append(f"'{location}' is not there")
    return sizes, wrong


def _damaged(path: Path, why: str) -> InputInvalid:
    return InputInvalid(
        "model-damaged",
        f"{path} is not a readable ONNX model",
        (Evidence(why, file=str(path)),),
        "save or fetch the file again",
    )
