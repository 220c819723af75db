"""The inputs and outputs of a version that is there already, for a configuration that does not name them."""

from __future__ import annotations

from pathlib import Path

from repobuild.errors import Evidence, InputInvalid
from repobuild.tensors import DType

MAX_BYTES = 1 << 31


def graph_interface(graph: Path) -> dict[tuple[str, str], tuple[str, tuple[int, ...]]] | None:
    """``{(role, name): (Triton type, shape with -1 for a free axis)}`` of an ONNX file.

    Args:
        graph: The file; external data is not read.

    Returns:
        ``None`` when there is no such file.

    Raises:
        InputInvalid: It is no ONNX file.
    """
    import onnx
    from google.protobuf.message import DecodeError

    if not graph.is_file():
        return None
    try:
        model = onnx.load_model(str(graph), load_external_data=False)
    except (DecodeError, ValueError) as problem:
        raise InputInvalid(
            "version-unreadable",
            "the present version's model.onnx is no ONNX file, so its inputs and outputs are unknown",
            (Evidence(str(problem).strip() or "it does not parse", file=str(graph)),),
            "mend or remove that version, or give the new model another name",
        ) from None
    constants = {t.name for t in model.graph.initializer}
    found = {}
    for role, values in (("input", model.graph.input), ("output", model.graph.output)):
        for value in values:
            if role == "input" and value.name in constants:
                continue
            tensor = value.type.tensor_type
            shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim)
            found[role, value.name] = (_type(tensor.elem_type), shape)
    return found


def _type(elem_type: int) -> str:
    try:
        return DType.of_onnx(elem_type).config
    except ValueError:
        return f"ONNX type {elem_type}"
