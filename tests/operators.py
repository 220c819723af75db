"""A real library of custom operators, that of onnxruntime-extensions, and models that need it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

NAME = "libtext.so"


def copy_library(folder: Path, name: str = NAME, *, build: int = 0) -> Path:
    """A copy; builds differ in bytes that nothing reads."""
    from onnxruntime_extensions import get_library_path

    to = folder / name
    shutil.copyfile(get_library_path(), to)
    with to.open("ab") as stream:
        stream.write(b"\0" * build)
    return to


def upper_model(width: int = 3) -> Any:
    """Texts in capitals: ``StringUpper`` of the library between ONNX's own operators."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("StringUpper", ["text"], ["upper"], "upper", domain="ai.onnx.contrib"),
        helper.make_node("Identity", ["upper"], ["loud"]),
    ]
    text, loud = (
        helper.make_tensor_value_info(name, TensorProto.STRING, ["n", width]) for name in ("text", "loud")
    )
    graph = helper.make_graph(nodes, "upper", [text], [loud])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.contrib", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)
