"""Models of PyTorch and ONNX handed to ``repobuild.convert`` as objects."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import repobuild
from repobuild.handing_models import model_name, write_model

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


class Scaled(torch.nn.Module):
    """A module of this file, which no other process imports."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.9), torch.nn.BatchNorm1d(4))

    def forward(self, x):
        """A dict of one answer."""
        return {"y": self.body(x) * 2}


def made(kind):
    """A model of each kind, and its answers to ones in eval mode."""
    module = Scaled()
    if kind == "script":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.jit.script(module)
    if kind == "compiled":
        return torch.compile(module)
    if kind == "program":
        free = torch.export.Dim.DYNAMIC
        return torch.export.export(module.eval(), (torch.ones(4, 3),), dynamic_shapes=({0: free},))
    if kind == "onnx":
        from onnx import TensorProto, helper

        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            [helper.make_node("Add", ["x", "x"], ["y"])],
            "double",
            [value("x", TensorProto.FLOAT, ["n", 3])],
            [value("y", TensorProto.FLOAT, ["n", 3])],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return module


@pytest.mark.parametrize("kind", ["module", "compiled", "script", "program", "onnx"])
def test_an_object_becomes_a_version_and_is_left_as_it_was(kind, tmp_path):
    model = made(kind)
    module = isinstance(model, torch.nn.Module)
    before = {k: v.clone() for k, v in model.state_dict().items()} if module else {}
    report = repobuild.convert(
        model, samples={"x": torch.randn(6, 3, requires_grad=True)}, repository=tmp_path / "models"
    )
    assert (report.version, report.changed, report.failed) == (1, True, ())
    assert len(report.source["sha256"]) == 64
    assert not any("/repobuild-" in note for note in report.notes)
    if module:
        assert model.training
        assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert (tmp_path / "models" / report.model / "1").is_dir()


def test_the_target_pytorch_takes_a_module_from_memory(tmp_path):
    model = Scaled()
    report = repobuild.convert(
        model, samples={"x": np.ones((4, 3), np.float32)}, repository=tmp_path, targets=["pytorch"], name="m"
    )
    assert report.failed == ()
    assert not any("/repobuild-" in note for note in report.notes)
    assert (tmp_path / "m" / "1" / "model.pt").is_file()


def test_names_come_from_the_model_itself():
    assert model_name(made("compiled")) == model_name(made("script")) == "Scaled"
    assert model_name(made("onnx")) == "double"
    assert model_name({"no": "model"}) is None


def test_what_cannot_be_pickled_is_told(tmp_path):
    import threading

    model = Scaled()
    model.lock = threading.Lock()
    with pytest.raises(repobuild.RepobuildError) as caught:
        write_model(model, tmp_path)
    assert caught.value.code == "estimator-unpicklable"
