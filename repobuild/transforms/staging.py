"""Lays a graph out for a tool that wants files and leaves files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from repobuild.transforms.files import GraphFile, is_external, place, tensors_of
from repobuild.transforms.nodes import set_nodes
from repobuild.transforms.writing import serialized

if TYPE_CHECKING:
    from onnx import NodeProto


def stage(source: GraphFile, folder: Path) -> Path:
    """Lay the graph into a folder of its own, where the quantiser may leave files.

    Every node gets a name, since nodes are excluded by name, and Constants become initialisers, since the
    quantiser only knows weights of that form.
    """
    proto = source.proto
    taken: set[str] = set()
    nodes: list[NodeProto] = []
    for index, node in enumerate(proto.graph.node):
        wanted = node.name or f"{node.op_type}_{index}"
        while wanted in taken:
            wanted = f"{wanted}_{index}"
        node.name = wanted
        taken.add(wanted)
        if node.op_type == "Constant" and not node.domain and node.attribute[0].name == "value":
            tensor = proto.graph.initializer.add()
            tensor.CopyFrom(node.attribute[0].t)
            tensor.name = node.output[0]
        else:
            nodes.append(node)
    set_nodes(proto.graph, nodes)
    staged = folder / "model.onnx"
    staged.write_bytes(serialized(proto))
    for path in sorted(_data(source)):
        copy = folder / path.relative_to(source.folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)  # no link: ONNX refuses data files that have two names
    return staged


def _data(source: GraphFile) -> set[Path]:
    return {place(t, source.folder).path for t in tensors_of(source.proto) if is_external(t)}
