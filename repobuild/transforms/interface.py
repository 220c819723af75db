"""What a transform of a graph does, and what flows in and out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from repobuild.artifact import Tool
from repobuild.tensors import Batch


@dataclass(frozen=True, slots=True)
class Size:
    """How large a graph is.

    Attributes:
        nodes: Nodes, those in the bodies of control-flow nodes included.
        bytes: Bytes of the ONNX file and of the data files that it names.
    """

    nodes: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What the runtimes that a graph is made for load at most.

    Attributes:
        opset: Opset of the default domain.
        ml_opset: Opset of ``ai.onnx.ml``.
        ir: ONNX IR version.
    """

    opset: int
    ml_opset: int
    ir: int


@dataclass(frozen=True, slots=True)
class Applied:
    """What a transform did.

    Attributes:
        detail: One sentence for the report.
        notes: What a reader should know, such as the nodes that were left as they were.
        tools: What took part.
        before: Size of the graph that went in.
        after: Size of the graph that came out.
    """

    detail: str
    notes: tuple[str, ...]
    tools: tuple[Tool, ...]
    before: Size
    after: Size


class Transform(Protocol):
    """Writes another form of an ONNX file.

    Inputs and outputs keep names, types and shapes, so clients see no difference.
    """

    name: str

    def apply(self, model: Path, requests: Sequence[Batch], to: Path) -> Applied:
        """Write the transformed graph.

        Args:
            model: ONNX file; external data lies beside it. It is not changed.
            requests: Whole feeds of the graph, one array an input, in the graph's own types. Their shapes
                may differ.
            to: ONNX file to write, in another place than ``model``. If ``model`` has external data, weights
                go into ``<to.name>.data`` beside it.

        Raises:
            ConversionFailed: The graph cannot be transformed; the node or reason is named.
            InputInvalid: The file's external data cannot be read.
            EnvironmentLacking: ONNX Runtime is missing, or the disk refuses.
        """
