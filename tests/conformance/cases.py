"""The cases that ONNX ships for backends: a model, inputs, and the answers that the standard prescribes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STORED = ("simple", "pytorch-converted", "pytorch-operator")
"""Kinds of cases that ONNX ships as files; "node" is made by its code, one or more for every operator."""


CARRIED = frozenset(
    [
        "bool",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
    ]
)
"""NumPy types that Triton has, text aside."""


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        name: Its name, which is a model name too.
        kind: ``node``, or one of :data:`STORED`.
        model: The ``ModelProto``.
        inputs: Arrays by input, or whatever the case gives for an input that is no tensor.
        outputs: The answers by output.
        rtol: Bounds as ONNX's own runner has them: ``|got - want| <= atol + rtol * |want|``.
        atol: See ``rtol``.
    """

    name: str
    kind: str
    model: Any
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    rtol: float
    atol: float

    def sent(self) -> dict[str, Any]:
        """The inputs that a client sends: those of types that Triton carries."""
        import numpy as np

        return {
            name: array
            for name, array in self.inputs.items()
            if isinstance(array, np.ndarray) and (array.dtype.kind == "U" or array.dtype.name in CARRIED)
        }

    @property
    def operator(self) -> str:
        """The operator that a node case is about, the domain before it where it is not ONNX's main one."""
        node = self.model.graph.node[0]
        return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


def collect() -> list[Case]:
    """Every case, sorted by name."""
    return sorted((*_node_cases(), *_stored_cases()), key=lambda case: case.name)


def _node_cases() -> Iterator[Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, on the overflows that the reference code means to have
        from onnx.backend.test.case import node

        found = node.collect_testcases(None)
    for case in found:
        (inputs, outputs) = case.data_sets[0]
        yield _case(case, case.model, inputs, outputs)


def _stored_cases() -> Iterator[Case]:
    import onnx
    from onnx.backend.test.loader import load_model_tests

    for kind in STORED:
        for case in load_model_tests(kind=kind):
            folder = Path(case.model_dir)
            if not (folder / "model.onnx").is_file():
                continue
            model = onnx.load(folder / "model.onnx")
            data = folder / "test_data_set_0"
            yield _case(
                case,
                model,
                _read(data, "input", model.graph.input),
                _read(data, "output", model.graph.output),
            )


def _read(folder: Path, role: str, values: Any) -> list[Any]:
    """The stored tensors; something else than a tensor stays a message."""
    from onnx import TensorProto, numpy_helper

    found: list[Any] = []
    for index, value in enumerate(values):
        file = folder / f"{role}_{index}.pb"
        if not file.is_file():
            break
        if value.type.WhichOneof("value") != "tensor_type":
            found.append(file.read_bytes())
            continue
        found.append(numpy_helper.to_array(TensorProto.FromString(file.read_bytes())))
    return found


def as_text(array: Any) -> Any:
    """Text of any kind as NumPy's unicode; other arrays as they are."""
    import numpy as np

    array = np.asarray(array)
    if array.dtype.kind not in "OS":
        return array
    texts = [v.decode() if isinstance(v, bytes) else v for v in array.ravel()]
    return np.array(texts, dtype=np.str_).reshape(array.shape)


def _tensor(value: Any) -> Any:
    """A value of a case as an array, if it is a tensor; sequences and optional values stay as they are."""
    import numpy as np
    from onnx import TensorProto, numpy_helper

    if isinstance(value, TensorProto):
        value = numpy_helper.to_array(value)
    return as_text(value) if isinstance(value, np.ndarray | np.generic) else value


def _case(case: Any, model: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Case:
    return Case(
        case.name,
        case.kind,
        model,
        dict(zip((v.name for v in model.graph.input), map(_tensor, inputs), strict=False)),
        dict(zip((v.name for v in model.graph.output), map(_tensor, outputs), strict=False)),
        case.rtol,
        case.atol,
    )
