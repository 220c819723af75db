"""The pytorch target: TorchScript that answers as the model, under names that Triton's backend finds."""

from __future__ import annotations

import sys
import warnings
import zipfile

import numpy as np
import pytest
import torch

from repobuild.emit.config import order_mistakes, read_config
from repobuild.tensors import DType, Signature, TensorSpec
from repobuild.worker.script_desk import positions
from repobuild.worker.script_maker import argument_names

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


def rows(*shape):
    """Seeded float32 numbers."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def asked(version, *arrays):
    """The answers of the artifact, in this process: its code is the test's own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.load(str(version / "model.pt"))
    return [t.numpy() for t in script(*(torch.from_numpy(a) for a in arrays))]


BRANCH = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 2)

        def forward(self, x, scale: float = 2.0):
            y = self.lin(x)
            if bool(x.sum() > 0):
                y = y * scale
            return {"scores": y, "top": y.argmax(1)}
"""


def test_a_branch_on_values_is_kept_by_scripting(torch_project, convert, version):
    samples = rows(6, 3)
    module, recipe = torch_project(BRANCH, {"x": samples}, serving={"max_batch_size": 0})
    outcome = convert(recipe)
    assert outcome.status == 0, outcome.err
    assert "torch.jit.script, which keeps branches" in outcome.err
    for request in (np.abs(samples), -np.abs(samples)):
        got = asked(version, request)
        want = module(torch.from_numpy(request))
        np.testing.assert_allclose(got[0], want["scores"].detach().numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(got[1], want["top"].numpy())
    _, config = read_config(version.parent)
    assert config.backend == "pytorch"
    assert [i.name for i in config.input] == ["x"]
    assert [o.name for o in config.output] == ["scores__0", "top__1"]
    assert config.instance_group[0].kind == type(config.instance_group[0]).KIND_CPU
    assert not config.parameters


def test_a_branch_that_only_a_trace_could_lose_is_refused(torch_project, convert, tmp_path):
    code = BRANCH.replace("y = y * scale", "y = (lambda v: v * scale)(y)")  # TorchScript knows no lambda
    _, recipe = torch_project(code, {"x": rows(6, 3)})
    outcome = convert(recipe)
    assert outcome.status == 5
    assert "error[script-unequal]" in outcome.err
    assert "a trace would keep the one way that it went" in outcome.err
    assert not (tmp_path / "models" / "model").exists()


def test_a_trace_keeps_free_axes_and_nothing_of_the_users_files(torch_project, convert, version, tmp_path):
    code = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 6)

            def forward(self, x, **more):
                rows, length, _ = x.shape
                return self.lin(x).view(rows, length * 2, 3), torch.arange(length).sum() + x.sum((1, 2))
    """
    axes = {"x": {0: "batch", 1: "length"}}
    module, recipe = torch_project(code, {"x": rows(4, 5, 4)}, export={"dynamic_axes": axes})
    outcome = convert(recipe)
    assert outcome.status == 0, outcome.err
    assert "made by torch.jit.trace" in outcome.err
    request = rows(2, 9, 4)
    for got, want in zip(asked(version, request), module(torch.from_numpy(request)), strict=True):
        np.testing.assert_allclose(got.reshape(want.shape), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    _, config = read_config(version.parent)
    assert [list(o.dims) for o in config.output] == [[-1, 3], [1]]
    data = (version / "model.pt").read_bytes()
    assert str(tmp_path).encode() not in data
    assert b"net.py" not in data
    with zipfile.ZipFile(version / "model.pt") as archive:
        assert not [n for n in archive.namelist() if n.endswith(".debug_pkl")]


def test_an_operator_without_onnx_form_is_served(torch_project, convert):
    code = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(3, 3))

            def forward(self, x):
                return torch.linalg.matrix_exp(self.weight + 0 * x.sum()) @ x.unsqueeze(-1)
    """
    _, recipe = torch_project(code, {"x": rows(4, 3)}, serving={"max_batch_size": 0})
    assert convert(recipe).status == 0
    onnx = convert(recipe, "--set", "targets=[onnxruntime]", "--set", "name=other")
    assert onnx.status == 5
    assert "target pytorch" in onnx.err


def test_a_quantised_script_is_served_and_lints_clean(
    torch_project, convert, version, repobuild_cli, tmp_path
):
    def quantised(module, home):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            small = torch.ao.quantization.quantize_dynamic(module, {torch.nn.Linear}, dtype=torch.qint8)
            torch.jit.script(small).save(str(home / "model.pt"))
        return "model.pt"

    code = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(8, 3)

            def forward(self, x):
                return self.lin(x)
    """
    _, recipe = torch_project(code, {"x": rows(4, 8)}, quantised, tolerance={"atol": 0.05, "rtol": 0.05})
    outcome = convert(recipe)
    assert outcome.status == 0, outcome.err
    linted = repobuild_cli("lint", tmp_path / "models")
    assert linted.status == 0, linted.out + linted.err
    assert "warning" not in linted.out
    _, config = read_config(version.parent)
    assert [list(o.dims) for o in config.output] == [[3]]
    assert config.max_batch_size > 0


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="torch.jit ends there")
def test_an_exported_program_with_free_axes_and_bounds(torch_project, convert, version):
    def exported(module, home):
        axis = torch.export.Dim("rows", min=1, max=12)
        program = torch.export.export(module, (torch.zeros(4, 4),), dynamic_shapes=({0: axis},))
        torch.export.save(program, home / "net.pt2")
        return "net.pt2"

    code = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 6)

            def forward(self, x):
                return self.lin(x).view(x.shape[0], 2, 3) + torch.arange(x.shape[0])[:, None, None] * 0
    """
    module, recipe = torch_project(code, {"x": rows(5, 4)}, exported)
    outcome = convert(recipe)
    assert outcome.status == 0, outcome.err
    _, config = read_config(version.parent)
    assert config.max_batch_size == 12
    request = rows(11, 4)
    [got] = asked(version, request)
    np.testing.assert_allclose(got, module(torch.from_numpy(request)).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_model_of_scikit_learn_has_no_torchscript(risk_project, repobuild_cli, tmp_path):
    outcome = repobuild_cli(
        "convert", risk_project, "-r", tmp_path / "models", "--trust", "pickle", "--set", "targets=[pytorch]"
    )
    assert outcome.status == 3
    assert "error[target-source]" in outcome.err


def test_names_are_found_as_the_backend_finds_them():
    assert positions(["b", "a"], ["a", "b"]) == [1, 0]
    assert positions(["INPUT__1", "INPUT__0"], ["a", "b"]) == [1, 0]
    assert positions(["b__0", "x.y"], ["a", "b"]) == [0, 1]
    assert positions(["a__b__1", "b__0"], ()) == [0, 1]  # what stands behind the first '__' is no number
    assert positions(["b__1", "a__"], ()) == [1, 0]
    assert positions(["a___1", "b__0"], ()) == [0, 1]
    assert positions(["a__\u0661", "b__0"], ()) == [0, 1]
    assert argument_names(["x", "mask"]) == ("x", "mask")
    assert argument_names(["x", "class"]) == argument_names(["a.b", "c"]) == ("INPUT__0", "INPUT__1")


@pytest.mark.parametrize(
    ("names", "outputs", "good"),
    [
        (["a", "b"], ["b", "a"], False),
        (["a", "b"], ["b"], False),
        (["a", "b"], ["a"], True),
        (["a__0", "b__1"], ["b__1", "a__0"], True),
        (["a__x__0", "b__1"], ["b__1", "a__x__0"], False),
    ],
    ids=["swapped", "first left out", "last left out", "by number", "by half a number"],
)
def test_outputs_that_go_by_their_order_keep_it(names, outputs, good):
    from repobuild.triton import model_config

    signature = Signature((), tuple(TensorSpec(n, DType.FP32, (None, 1)) for n in names), batched=True)
    message = model_config(output=[{"name": n} for n in outputs])
    assert (not list(order_mistakes(message, signature))) == good
