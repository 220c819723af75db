"""float16 graphs on which ONNX Runtime crashed load at every level of optimisation."""

import subprocess
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from repobuild.graph.normal import strip_metadata
from repobuild.transforms.half import Half

LOAD = """
import sys, onnxruntime
for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
"""


@pytest.fixture
def loads():
    """``loads(path)``: in a process of its own, at every level."""

    def check(path):
        done = subprocess.run([sys.executable, "-c", LOAD, str(path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    return check


def product(graph, order, dims, weight, *, left=False):
    return graph(
        [
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node("Transpose", ["a"], ["t"], perm=order, name="turn"),
            helper.make_node("MatMul", ["w", "t"] if left else ["t", "w"], ["b"], name="multiply"),
            helper.make_node("Relu", ["b"], ["y"]),
        ],
        {"x": ("f", dims)},
        {"y": ("f", [None] * len(dims))},
        {"w": weight},
    )


@pytest.mark.parametrize(
    ("order", "dims"),
    [([1, 0, 2], ["n", 4, 8]), ([1, 0, 2], [3, 4, 8]), ([1, 2, 0, 3], ["n", 2, 3, 8])],
    ids=["free", "fixed", "four-axes"],
)
def test_transposes_of_rows_go_behind_the_product(graph, target, same, loads, operators, rng, order, dims):
    path = product(graph, order, dims, rng.normal(size=(8, 5)).astype("f"))
    asked = [{"x": rng.normal(size=[3 if d == "n" else d for d in dims]).astype("f")}]
    done = Half().apply(path, asked, target)
    loads(target)
    same(path, target, asked, rtol=1e-2, atol=1e-2)
    made = operators(target)
    assert made.index("MatMul") < made.index("Transpose")
    assert done.detail.startswith("4 of 4 float32 nodes")


@pytest.mark.parametrize(
    ("order", "dims", "shape", "left"),
    [([1, 2, 0], [8, "n", 4], (8, 5), False), ([1, 0, 2], [4, "n", 8], (5, 4), True)],
    ids=["columns-too", "weight-on-the-left"],
)
def test_what_cannot_be_put_behind_stays_float32_by_name(
    graph, target, same, loads, rng, order, dims, shape, left
):
    path = product(graph, order, dims, rng.normal(size=shape).astype("f"), left=left)
    asked = [{"x": rng.normal(size=[3 if d == "n" else d for d in dims]).astype("f")}]
    done = Half().apply(path, asked, target)
    loads(target)
    same(path, target, asked, rtol=1e-2, atol=1e-2)
    assert "Transpose 'turn'" in done.notes[0]
    assert "MatMul 'multiply'" in done.notes[0]
    assert done.notes[0].startswith("2 nodes stay float32 since ONNX Runtime would crash: ")


def test_a_transpose_with_other_readers_stays_for_them(graph, target, same, loads, rng):
    path = graph(
        [
            helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            helper.make_node("MatMul", ["t", "w"], ["b"]),
            helper.make_node("MatMul", ["t", "v"], ["c"]),
            helper.make_node("Relu", ["t"], ["z"]),
            helper.make_node("Add", ["b", "c"], ["y"]),
        ],
        {"x": ("f", ["n", 4, 8])},
        {"y": ("f", [4, "n", 5]), "z": ("f", [4, "n", 8])},
        {name: rng.normal(size=(8, 5)).astype("f") for name in "wv"},
    )
    asked = [{"x": rng.normal(size=(3, 4, 8)).astype("f")}]
    Half().apply(path, asked, target)
    loads(target)
    same(path, target, asked, rtol=1e-2, atol=2e-2)


def _architecture(name):
    from torch import nn

    class Encoder(nn.Module):
        """PyTorch's own encoder, its slow path: the sequence comes first inside."""

        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(30, 32)
            layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
            self.inner = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, ids, mask):
            return self.inner(self.embed(ids), src_key_padding_mask=mask == 0)

    class First(nn.Module):
        """The first answer of a model of transformers."""

        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, *inputs):
            given = {"pixel_values": inputs[0]} if name == "vit" else {"input_ids": inputs[0]}
            if name != "vit":
                given["attention_mask"] = inputs[1]
            if name == "t5":
                given["decoder_input_ids"] = inputs[0]
            if name in ("t5", "gpt2"):
                given["use_cache"] = False
            return self.inner(**given, return_dict=False)[0]

    if name == "encoder":
        return Encoder()
    import transformers

    size = {"vocab_size": 50}
    if name == "bert":
        made = transformers.BertModel(
            transformers.BertConfig(
                **size, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
            )
        )
    elif name == "gpt2":
        made = transformers.GPT2Model(
            transformers.GPT2Config(**size, n_embd=32, n_layer=2, n_head=4, n_positions=32)
        )
    elif name == "t5":
        made = transformers.T5Model(
            transformers.T5Config(
                **size, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_decoder_layers=1, num_heads=4
            )
        )
    else:
        made = transformers.ViTModel(
            transformers.ViTConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=64,
                image_size=16,
                patch_size=4,
            )
        )
    return First(made)


@pytest.mark.parametrize(
    "name", ["encoder", *(pytest.param(n, marks=pytest.mark.slow) for n in ("bert", "gpt2", "t5", "vit"))]
)
def test_transformers_load_in_float16_at_every_level(name, tmp_path, target, same, loads):
    import torch

    torch.manual_seed(0)
    module = _architecture(name).eval()
    ids, mask = torch.randint(1, 30, (2, 6)), torch.ones(2, 6, dtype=torch.int64)
    given = (torch.randn(2, 3, 16, 16),) if name == "vit" else (ids, mask)
    names = ["pixels"] if name == "vit" else ["ids", "mask"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecations
        with torch.no_grad():
            program = torch.onnx.export(
                module,
                given,
                dynamo=True,
                opset_version=18,
                input_names=names,
                output_names=["y"],
                verbose=False,
            )
    proto = program.model_proto
    strip_metadata(proto)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    asked = [{n: t.numpy() for n, t in zip(names, given, strict=True)}]
    done = Half().apply(path, asked, target)
    loads(target)
    same(path, target, asked, rtol=0.02, atol=0.02)
    assert done.after.bytes < done.before.bytes
    assert np.isfinite(onnxruntime.InferenceSession(str(target)).run(None, asked[0])[0]).all()
