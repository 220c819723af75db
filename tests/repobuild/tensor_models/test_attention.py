"""Attention whose keys are all masked for some query: what PyTorch answers there is what is served."""

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from repobuild.worker.torch_export import write_onnx


class Attention(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.mask = mask

    def forward(self, query, keep):
        mask = keep[:, None, None, :].expand(-1, 1, keep.shape[1], -1)
        if self.mask == "scores":
            mask = torch.zeros(()).masked_fill(~mask, float("-inf"))
        if self.mask == "none":
            query = query * keep[:, None, :, None]
        return nn.functional.scaled_dot_product_attention(
            query, query[:, :1], query[:, :1], None if self.mask == "none" else mask, enable_gqa=True
        )


@pytest.mark.parametrize("mask", ["flags", "scores", "none"])
def test_queries_without_keys_are_answered_as_pytorch_does(mask, tmp_path):
    net = Attention(mask).eval()
    rng = np.random.default_rng(0)
    query = rng.standard_normal((3, 2, 5, 4)).astype("float32")
    keep = np.array([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [0, 1, 1, 1, 1]], dtype=bool)
    example = (torch.from_numpy(query), torch.from_numpy(keep))
    free = {0: torch.export.Dim.DYNAMIC}
    path = tmp_path / "model.onnx"
    write_onnx(
        lambda: torch.export.export(
            net, example, dynamic_shapes=({**free, 2: free[0]}, {**free, 1: free[0]})
        ),
        lambda: ["output"],
        ["query", "keep"],
        18,
        path,
        "the model",
    )
    want = net(*example).numpy()
    (got,) = onnxruntime.InferenceSession(path).run(None, {"in:0": query, "in:1": keep})
    assert np.isfinite(want).all()
    if mask != "none":
        assert not want[1].any()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
