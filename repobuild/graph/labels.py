"""The pass that serves a class's index in place of the class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from repobuild.errors import InputInvalid, evidence
from repobuild.graph.outputs import PRODUCER, GraphPass
from repobuild.graph.walk import fresh_label

if TYPE_CHECKING:
    from onnx import ModelProto

UNKNOWN = -1


def index_labels(outputs: Mapping[str, Sequence[Any]]) -> GraphPass:
    """A pass that appends a lookup of the class to outputs.

    Args:
        outputs: ``{output: its classes in order}``, text or whole numbers.
    """

    def step(model: ModelProto) -> None:
        for name, classes in outputs.items():
            _append(model, name, classes)

    return step


def _append(model: ModelProto, name: str, classes: Sequence[Any]) -> None:
    from onnx import helper

    if all(isinstance(c, str) for c in classes):
        keys: dict[str, Any] = {"keys_strings": list(classes)}
    elif all(isinstance(c, int) and not isinstance(c, bool) for c in classes):
        keys = {"keys_int64s": list(classes)}
    else:
        raise InputInvalid(
            "labels-unfit",
            f"the classes of output '{name}' are neither text nor whole numbers",
            evidence([", ".join(map(repr, classes))[:200]]),
            "leave labels out for this output",
        )
    inner = fresh_label(model.graph, f"{PRODUCER}/{name}/class")
    for node in model.graph.node:
        node.output[:] = [inner if o == name else o for o in node.output]
        node.input[:] = [inner if i == name else i for i in node.input]
    node = helper.make_node(
        "LabelEncoder",
        [inner],
        [name],
        name=fresh_label(model.graph, f"{PRODUCER}/{name}/index"),
        domain="ai.onnx.ml",
        values_int64s=list(range(len(classes))),
        default_int64=UNKNOWN,
        **keys,
    )
    model.graph.node.append(node)
    for entry in model.opset_import:
        if entry.domain == "ai.onnx.ml":
            entry.version = max(entry.version, 2)
            return
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 2))
