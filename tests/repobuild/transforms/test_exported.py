"""Graphs as torch exports them, through every transform."""

import warnings

import numpy as np
import onnx
import pytest

from repobuild.graph.normal import strip_metadata
from repobuild.recipe.types import Bounds
from repobuild.transforms.bfloat16 import BFloat16
from repobuild.transforms.bisect import first_departure
from repobuild.transforms.half import Half
from repobuild.transforms.int8 import Int8
from repobuild.transforms.interface import Limits
from repobuild.transforms.optimise import optimise


def _models():
    import torch
    from torch import nn

    class Block(nn.Module):
        """A transformer block with a mask of the lowest float, as exported language models have it."""

        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(50, 32)
            self.qkv = nn.Linear(32, 96)
            self.out = nn.Linear(32, 32)
            self.norm, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
            self.feed = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

        def forward(self, tokens, mask):
            x = self.embed(tokens)
            q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
            scores = q @ k.transpose(1, 2) / 32**0.5
            scores = scores + (1.0 - mask[:, None, :]) * torch.finfo(torch.float32).min
            x = x + self.out(scores.softmax(-1) @ v)
            return x + self.feed(self.norm2(x))

    class Choice(nn.Module):
        """Two branches."""

        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, x):
            return torch.cond(x.sum() > 0, self.left, lambda x: self.right(x).relu(), (x,))

    mlp = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10), nn.Softmax(-1))
    cnn = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    batch = torch.export.Dim("batch", min=1, max=64)
    long = torch.export.Dim("long", min=2, max=64)
    return {
        "mlp": (mlp, (torch.randn(3, 64),), ["x"], ({0: batch},)),
        "cnn": (cnn, (torch.randn(3, 3, 16, 16),), ["x"], ({0: batch},)),
        "block": (
            Block(),
            (torch.randint(0, 50, (3, 5)), torch.ones(3, 5)),
            ["tokens", "mask"],
            ({0: batch, 1: long}, {0: batch, 1: long}),
        ),
        "choice": (Choice(), (torch.randn(3, 64),), ["x"], ({0: batch},)),
    }


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """``exported(name)``: the ONNX file, exported once."""
    import torch

    home = tmp_path_factory.mktemp("exported")
    made = {}

    def get(name):
        if name not in made:
            torch.manual_seed(0)
            module, example, names, dims = _models()[name]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the exporter's own deprecations
                program = torch.onnx.export(
                    module.eval(),
                    example,
                    dynamo=True,
                    opset_version=18,
                    input_names=names,
                    output_names=["y"],
                    dynamic_shapes=dims,
                    verbose=False,
                )
            proto = program.model_proto
            strip_metadata(proto)
            made[name] = home / f"{name}.onnx"
            onnx.save(proto, made[name])
        return made[name]

    return get


def requests(name):
    rng = np.random.default_rng(1)
    if name == "block":
        mask = np.ones((2, 7), "f")
        mask[0, 4:] = 0
        return [
            {"tokens": rng.integers(0, 50, shape), "mask": m}
            for shape, m in (((2, 7), mask), ((1, 3), np.ones((1, 3), "f")))
        ]
    shape = (3, 16, 16) if name == "cnn" else (64,)
    return [{"x": rng.normal(size=(n, *shape)).astype("f")} for n in (1, 4)]


ALL = pytest.mark.parametrize("name", ["mlp", "cnn", "block", "choice"])


CASES = [
    pytest.param(name, transform, atol, id=f"{name}-{transform.name}")
    for transform, atol in ((Half(), 0.01), (BFloat16(), 0.05), (Int8("dynamic"), 0.3), (Int8("static"), 0.3))
    for name in ("mlp", "cnn", "block", "choice")
    if (name, type(transform)) != ("choice", Int8)  # refused, see below
]


@pytest.mark.parametrize(("name", "transform", "atol"), CASES)
def test_every_transform_keeps_answers_and_interface(exported, target, same, name, transform, atol):
    path, asked = exported(name), requests(name)
    done = transform.apply(path, asked, target)
    same(path, target, asked, rtol=0.01, atol=atol)
    assert done.after.bytes < 0.85 * done.before.bytes
    assert first_departure(path, target, asked, Bounds(1.0, 0.1)) is None


def test_masks_of_the_lowest_float_stay_float32(exported, target):
    done = Half().apply(exported("block"), requests("block"), target)
    assert "reaches 3.403e+38" in done.notes[0]
    assert "Softmax" in done.notes[0]


@ALL
def test_optimisation_keeps_answers_and_free_dimensions(exported, target, same, name):
    path, asked = exported(name), requests(name)
    done = optimise(path, asked, target, Limits(18, 3, 10))
    same(path, target, asked, rtol=1e-4, atol=1e-5)
    assert first_departure(path, target, asked, Bounds(1e-5, 1e-3)) is None
    assert done.applied.after.nodes <= done.applied.before.nodes


def test_optimised_then_narrowed(exported, target, same, tmp_path):
    path, asked = exported("block"), requests("block")
    middle = tmp_path / "middle.onnx"
    optimise(path, asked, middle, Limits(18, 3, 10))
    Half().apply(middle, asked, target)
    same(path, target, asked, rtol=0.01, atol=0.01)


def test_bodies_of_a_graph_without_other_weights_are_refused_by_the_quantiser(exported, target):
    from repobuild.errors import ConversionFailed

    with pytest.raises(ConversionFailed, match="no node of the graph can be quantised"):
        Int8("dynamic").apply(exported("choice"), requests("choice"), target)
