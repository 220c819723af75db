"""Small ONNX files: ``graph(nodes, inputs, outputs, weights)`` writes one and gives its path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

TYPES = {
    "f": TensorProto.FLOAT,
    "d": TensorProto.DOUBLE,
    "h": TensorProto.FLOAT16,
    "i": TensorProto.INT64,
    "b": TensorProto.BOOL,
    "s": TensorProto.STRING,
}


def value(name: str, said: tuple[str, Sequence[Any]]) -> onnx.ValueInfoProto:
    """``("f", ["n", 4])`` as ONNX declares it."""
    return helper.make_tensor_value_info(name, TYPES[said[0]], said[1])


@pytest.fixture
def graph(tmp_path):
    """Writes an ONNX file that ONNX's checker takes."""

    def make(
        nodes: Sequence[onnx.NodeProto],
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
        *,
        opset: int = 17,
        ml: int = 0,
        external: bool = False,
        folder: str = "source",
        weights_as_inputs: Sequence[str] = (),
        functions: Sequence[onnx.FunctionProto] = (),
    ) -> Path:
        tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
        listed = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors]
        proto = helper.make_model(
            helper.make_graph(
                nodes,
                "g",
                [
                    *(value(n, s) for n, s in inputs.items()),
                    *(v for v in listed if v.name in weights_as_inputs),
                ],
                [value(n, s) for n, s in outputs.items()],
                tensors,
            ),
            opset_imports=[
                helper.make_opsetid("", opset),
                *([helper.make_opsetid("ai.onnx.ml", ml)] if ml else []),
                *(helper.make_opsetid(f.domain, 1) for f in functions),
            ],
            ir_version=8,
            functions=functions,
        )
        onnx.checker.check_model(proto)
        home = tmp_path / folder
        home.mkdir(exist_ok=True)
        path = home / "model.onnx"
        if external:
            onnx.save(proto, path, save_as_external_data=True, location="model.onnx.data", size_threshold=256)
        else:
            onnx.save(proto, path)
        return path

    return make


@pytest.fixture
def target(tmp_path):
    """A file to write, in a folder of its own."""
    (tmp_path / "result").mkdir()
    return tmp_path / "result" / "model.onnx"


def _answers(path, requests):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(None, dict(request)), strict=True)) for request in requests]


@pytest.fixture
def answers():
    """``answers(path, requests)``: a dictionary of outputs a request."""
    return _answers


@pytest.fixture
def interface():
    """``interface(path)``: names, types and dimensions of inputs and outputs."""

    def look(path):
        proto = onnx.load(path, load_external_data=False)
        return [
            (
                v.name,
                v.type.tensor_type.elem_type,
                [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim],
            )
            for v in (*proto.graph.input, *proto.graph.output)
        ]

    return look


@pytest.fixture
def same(interface):
    """``same(before, after, requests, rtol, atol)``: both are valid, and answer alike in the same types."""

    def check(before, after, requests, rtol=2e-3, atol=2e-3):
        onnx.checker.check_model(str(after), full_check=True)
        assert interface(before) == interface(after)
        for want, got in zip(_answers(before, requests), _answers(after, requests), strict=True):
            assert want.keys() == got.keys()
            for name, expected in want.items():
                assert got[name].dtype == expected.dtype
                assert got[name].shape == expected.shape
                if expected.dtype.kind == "f":
                    np.testing.assert_allclose(got[name], expected, rtol=rtol, atol=atol)
                else:
                    np.testing.assert_array_equal(got[name], expected)

    return check


@pytest.fixture
def operators():
    """``operators(path)``: the operators of the outermost graph, in order."""

    def look(path):
        return [n.op_type for n in onnx.load(path, load_external_data=False).graph.node]

    return look


@pytest.fixture
def rng():
    """Seeded random numbers."""
    return np.random.default_rng(0)
