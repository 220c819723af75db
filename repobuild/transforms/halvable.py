"""Which operators take float16, read from their own schemas.

ONNX's schemas (ONNX Runtime's for its own domain) say which types each input and output may have, for the
very opset that a graph imports. What ONNX Runtime's float16 converter leaves alone for want of kernels
(``DEFAULT_OP_BLOCK_LIST`` in onnxruntime/transformers/float16.py) is left alone too.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

KEPT = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
"""Operators whose scales would lose digits for nothing."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """An input or output of a schema.

    Attributes:
        kind: Type variable, or the type itself (``tensor(float)``).
        variadic: Whether it stands for all further ones.
    """

    kind: str
    variadic: bool


@dataclass(frozen=True, slots=True)
class Schema:
    """The types of an operator.

    Attributes:
        inputs: In order.
        outputs: In order.
        allowed: Types by type variable.
    """

    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    allowed: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Halves:
    """What of a node becomes float16.

    Attributes:
        inputs: Positions of inputs.
        outputs: Positions of outputs.
    """

    inputs: frozenset[int]
    outputs: frozenset[int]


class Operators:
    """The operators of a model, at the opsets that it imports."""

    def __init__(self, model: ModelProto) -> None:
        self._opsets = {_domain(entry.domain): entry.version for entry in model.opset_import}

    def halves(self, node: NodeProto, types: Mapping[str, int]) -> Halves | str:
        """What of a node can become float16, or why nothing can.

        Args:
            node: A node that has float32 among its inputs or outputs, and is no Cast, Constant or
                control-flow node.
            types: ONNX element types of what it reads and writes.
        """
        from onnx import TensorProto

        if node.op_type in KEPT or (not node.domain and node.op_type in _blocked()):
            return f"{node.op_type} is better left in float32"
        schema = self._schema(node)
        if schema is None:
            return f"no schema is known for {node.domain}.{node.op_type}"
        if any(name and name not in types for name in (*node.input, *node.output)):
            return "the type of one of its tensors is not known"
        floats = [i for i, n in enumerate(node.input) if n and types[n] == TensorProto.FLOAT]
        bound = {_parameter(schema.inputs, i).kind for i in floats} - {"tensor(float)"}
        if not bound:
            return f"{node.op_type} takes float32 alone"
        unfit = [kind for kind in sorted(bound) if "tensor(float16)" not in schema.allowed.get(kind, ())]
        if unfit:
            return f"{node.op_type} has no float16 form at this opset"
        inputs = frozenset(i for i in floats if _parameter(schema.inputs, i).kind in bound)
        outputs = []
        for i, name in enumerate(node.output):
            if not name or types[name] != TensorProto.FLOAT:
                continue
            kind = _parameter(schema.outputs, i).kind
            if kind in bound:
                outputs.append(i)
            elif kind != "tensor(float)":
                return f"the type of an output of {node.op_type} does not follow from its inputs"
        return Halves(inputs, frozenset(outputs))

    def _schema(self, node: NodeProto) -> Schema | None:
        domain = _domain(node.domain)
        return _schema_of(node.op_type, self._opsets.get(domain, 1), domain)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _parameter(parameters: Sequence[Parameter], index: int) -> Parameter:
    return parameters[min(index, len(parameters) - 1)]


@functools.cache
def _schema_of(kind: str, opset: int, domain: str) -> Schema | None:
    import onnx

    try:
        found: Any = onnx.defs.get_schema(kind, opset, domain)
    except onnx.defs.SchemaError:
        return _of_runtime(kind, opset, domain)
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    return Schema(
        tuple(Parameter(p.type_str, p.option == variadic) for p in found.inputs),
        tuple(Parameter(p.type_str, p.option == variadic) for p in found.outputs),
        {c.type_param_str: frozenset(c.allowed_type_strs) for c in found.type_constraints},
    )


def _of_runtime(kind: str, opset: int, domain: str) -> Schema | None:
    """ONNX Runtime's schema, where its Python package gives them away."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    if not hasattr(state, "get_all_operator_schema"):
        return None
    fitting = [
        s
        for s in state.get_all_operator_schema()
        if (s.name, s.domain) == (kind, domain) and s.since_version <= opset
    ]
    if not fitting:
        return None
    found = max(fitting, key=lambda s: int(s.since_version))
    return Schema(
        tuple(Parameter(p.typeStr, p.option.name == "Variadic") for p in found.inputs),
        tuple(Parameter(p.typeStr, p.option.name == "Variadic") for p in found.outputs),
        {c.type_param_str: frozenset(c.allowed_type_strs) for c in found.type_constraints},
    )


@functools.cache
def _blocked() -> frozenset[str]:
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST

    return frozenset(DEFAULT_OP_BLOCK_LIST)
