"""How large the values of every float tensor of a graph get, measured inside the graph.

Each float tensor gets a few nodes beside it that reduce it to two numbers, and the graph answers with those
alone. So ONNX Runtime frees every tensor as usual, and no more memory is needed than for running the model;
bodies of If, Loop and Scan are measured in the same way, their largest values over all turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from repobuild.tensors import Batch
from repobuild.transforms.element_types import Path, Types, bodies
from repobuild.transforms.files import GraphFile
from repobuild.transforms.nodes import opset_of, set_nodes
from repobuild.transforms.session import ask, open_graph

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

PREFIX = "repobuild/measure/"
"""Names that the added nodes and tensors begin with."""


@dataclass(frozen=True, slots=True)
class Range:
    """What was seen of a float tensor.

    Attributes:
        largest: Largest finite ``|value|`` over all requests.
        faintest: Smallest, over the requests in which not all is zero, of the largest finite ``|value|``;
            0 if all was zero always.
        broken: Most elements of one request that were NaN or infinite.
    """

    largest: float
    faintest: float
    broken: int


def measure(source: GraphFile, types: Types, requests: Sequence[Batch]) -> Mapping[tuple[Path, str], Range]:
    """Run all requests and see how large every float32 and float16 tensor gets.

    Args:
        source: The graph.
        types: Its element types.
        requests: Whole feeds.

    Returns:
        What was seen of each tensor, by graph and name. Tensors inside bodies other than those of If, Loop
        and Scan are not in it.

    Raises:
        ConversionFailed: ONNX Runtime cannot load or run the graph.
    """
    import numpy as np

    proto = source.copy()
    probe = _Probe(proto, types)
    vector = probe.graph(proto.graph, ())
    if vector is None:
        return {}
    del proto.graph.output[:]
    proto.graph.output.add().name = vector
    session = open_graph(proto, source)
    seen = np.stack([ask(session, request)[0].reshape(-1, 2) for request in requests])
    largest = seen[:, :, 0].max(axis=0)
    faintest = np.where(seen[:, :, 0] > 0, seen[:, :, 0], np.inf).min(axis=0)
    broken = seen[:, :, 1].max(axis=0)
    return {
        key: Range(float(most), 0.0 if np.isinf(least) else float(least), int(count))
        for key, most, least, count in zip(probe.order, largest, faintest, broken, strict=True)
    }


class _Probe:
    """Adds the nodes that measure."""

    def __init__(self, proto: ModelProto, types: Types) -> None:
        self._types = types
        self._opset = opset_of(proto)
        self._count = 0
        self.order: list[tuple[Path, str]] = []

    def graph(self, graph: GraphProto, path: Path) -> str | None:
        """Measure a graph; gives the name of a float32 tensor ``[2 x tensors]``, None if there is nothing."""
        from onnx import TensorProto

        floats = (TensorProto.FLOAT, TensorProto.FLOAT16)
        types = self._types[path]
        constants = {t.name for t in graph.initializer}
        fresh: list[NodeProto] = []
        parts: list[str] = []

        def look(name: str) -> None:
            if types.get(name) in floats and name not in constants:
                parts.append(self._of(fresh, name, half=types[name] == TensorProto.FLOAT16))
                self.order.append((path, name))

        for value in graph.input:
            look(value.name)
        for index, node in enumerate(graph.node):
            fresh.append(node)
            inner = self._body(fresh, node, (*path, (index, "")))
            if inner:
                parts.append(inner)
            if node.op_type != "Constant":
                for name in node.output:
                    look(name)
        if not parts:
            return None
        vector = self._add(fresh, "Concat", parts, axis=0)
        set_nodes(graph, fresh)
        return vector

    def _of(self, fresh: list[NodeProto], name: str, *, half: bool) -> str:
        """Two numbers of a tensor: the largest finite absolute value, and how many are not finite."""
        from onnx import TensorProto

        if half:
            name = self._add(fresh, "Cast", [name], to=int(TensorProto.FLOAT))
        flat = self._add(fresh, "Reshape", [name, self._constant(fresh, [-1])])
        zero = self._constant(fresh, [0.0])
        padded = self._add(fresh, "Concat", [flat, zero], axis=0)  # so that empty tensors can be reduced
        size = self._add(fresh, "Abs", [padded])
        finite = self._add(fresh, "Less", [size, self._constant(fresh, [float("inf")])])
        kept = self._add(fresh, "Where", [finite, size, zero])
        largest = self._add(fresh, "ReduceMax", [kept], keepdims=1)
        bad = self._add(fresh, "Cast", [self._add(fresh, "Not", [finite])], to=int(TensorProto.FLOAT))
        return self._add(fresh, "Concat", [largest, self._add(fresh, "ReduceSum", [bad], keepdims=1)], axis=0)

    def _body(self, fresh: list[NodeProto], node: NodeProto, path: Path) -> str | None:
        if node.domain or node.op_type not in ("If", "Loop", "Scan"):
            return None
        if node.op_type == "Scan" and self._opset < 9:
            return None
        *above, (index, _) = path
        vectors: list[tuple[GraphProto, str | None, int]] = []
        for name, body in bodies(node):
            before = len(self.order)
            vector = self.graph(body, (*above, (index, name)))
            vectors.append((body, vector, 2 * (len(self.order) - before)))
        total = sum(width for *_, width in vectors)
        if not total:
            return None
        if node.op_type == "If":
            for number, (body, vector, _) in enumerate(vectors):
                inside: list[NodeProto] = []
                parts = [
                    vector if at == number and vector else self._constant(inside, [0.0] * width)
                    for at, (*_, width) in enumerate(vectors)
                    if width
                ]
                answer = self._add(inside, "Concat", parts, axis=0)
                body.node.extend(inside)
                self._output(body, answer)
            node.output.append(self._name())
            return str(node.output[-1])
        (body, vector, _) = vectors[0]
        assert vector is not None
        self._output(body, vector)
        outputs = len(body.output) - (1 if node.op_type == "Loop" else 0)
        node.output.extend([""] * (outputs - 1 - len(node.output)) + [self._name()])
        for attribute in node.attribute:
            if attribute.name in ("scan_output_axes", "scan_output_directions"):
                attribute.ints.append(0)
        turns = self._add(fresh, "Reshape", [node.output[-1], self._constant(fresh, [-1, total])])
        zeros = self._add(
            fresh, "Reshape", [self._constant(fresh, [0.0] * total), self._constant(fresh, [1, total])]
        )
        padded = self._add(fresh, "Concat", [turns, zeros], axis=0)
        if self._opset >= 18:
            return self._add(fresh, "ReduceMax", [padded, self._constant(fresh, [0])], keepdims=0)
        return self._add(fresh, "ReduceMax", [padded], axes=[0], keepdims=0)

    def _output(self, body: GraphProto, name: str) -> None:
        from onnx import TensorProto, helper

        # Another name, since a body must not answer twice with one.
        again = self._name()
        body.node.append(helper.make_node("Identity", [name], [again], name=again))
        body.output.append(helper.make_tensor_value_info(again, TensorProto.FLOAT, [None]))

    def _constant(self, fresh: list[NodeProto], values: list[int] | list[float]) -> str:
        import numpy as np
        from onnx import numpy_helper

        kind = np.float32 if isinstance(values[0], float) else np.int64
        return self._add(fresh, "Constant", [], value=numpy_helper.from_array(np.array(values, dtype=kind)))

    def _add(self, fresh: list[NodeProto], kind: str, inputs: list[str], **attributes: Any) -> str:
        from onnx import helper

        name = self._name()
        fresh.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def _name(self) -> str:
        self._count += 1
        return f"{PREFIX}{self._count}"
