"""Runs float16 graphs on the CPU with the rounding that a GPU has.

ONNX Runtime's CPU provider has few float16 kernels. It puts Casts around float32 kernels for the other nodes,
makes the nodes that lie between such nodes float32 as well, and removes all pairs of Casts that meet, at
every level of optimisation (onnxruntime/core/optimizer/insert_cast_transformer.cc; seen in 1.32, whose graphs
then name tensors ``InsertedPrecisionFreeCast_...``). No value between them is ever rounded to float16, and
one that overflows on a GPU stays finite: answers on the CPU alone prove nothing for a GPU.

Each float16 tensor is therefore put into a sequence and taken out again, which keeps the Casts apart
(Identity and eight other operators were tried and do not). Every node then computes in float32, and its
result is rounded to float16, as GPU kernels with float32 accumulators do.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from repobuild.tensors import Array, Batch
from repobuild.transforms.casting import HALF
from repobuild.transforms.element_types import Types, element_types, graphs
from repobuild.transforms.files import opened
from repobuild.transforms.nodes import set_nodes
from repobuild.transforms.session import ask, open_graph

if TYPE_CHECKING:
    from onnx import ModelProto

PREFIX = "repobuild/exact/"
"""Names that the added nodes and tensors begin with."""


def keep_rounding(proto: ModelProto, types: Types) -> None:
    """Let every float16 tensor that a node makes be rounded, in place.

    The graph is to be loaded without optimisation.

    Args:
        proto: The graph, of opset 11 or higher (the first with SequenceAt).
        types: Its element types.
    """
    import numpy as np
    from onnx import helper, numpy_helper

    count = 0
    first = numpy_helper.from_array(np.array(0))
    for path, graph in reversed(list(graphs(proto.graph))):  # innermost first, before they are copied
        kinds = types[path]
        if HALF not in kinds.values():
            continue
        zero = f"{PREFIX}{'.'.join(f'{index}.{name}' for index, name in path)}first"
        fresh = [helper.make_node("Constant", [], [zero], value=first, name=zero)]
        for node in graph.node:
            fresh.append(node)
            if node.op_type == "Constant" and not node.domain:
                continue
            for position, name in enumerate(node.output):
                if kinds.get(name) == HALF:
                    count += 1
                    own, held = f"{PREFIX}{count}", f"{PREFIX}{count}/held"
                    node.output[position] = own
                    fresh.append(helper.make_node("SequenceConstruct", [own], [held], name=own))
                    fresh.append(helper.make_node("SequenceAt", [held, zero], [name], name=held))
        set_nodes(graph, fresh)


class RoundedRunner:
    """An ONNX file with float16 in it, answering on the CPU as it would where float16 is real.

    Args:
        path: The ONNX file.

    Raises:
        ConversionFailed: ONNX Runtime refuses the file.
    """

    def __init__(self, path: Path) -> None:
        with opened(path) as source:
            proto = source.copy()
            keep_rounding(proto, element_types(source))
            self._session = open_graph(proto, source)
        self._names = [output.name for output in self._session.get_outputs()]

    def run(self, batch: Batch) -> dict[str, Array]:
        """See :meth:`repobuild.runners.interface.Runner.run`."""
        return dict(zip(self._names, ask(self._session, batch, self._names), strict=True))
