"""Attention as PyTorch computes it, where every key of a query is masked.

PyTorch answers such a query with zeros (``aten::_safe_softmax``). The exporter's own form fills masked scores
with the least finite number, and so answers with the mean of all values (onnxscript 0.7.2,
torch_lib/ops/nn.py, ``_aten_scaled_dot_product_attention_bool_mask_onnx``). Padding before the words, or a
row of nothing but padding, makes such queries.
"""

from __future__ import annotations

from typing import Any


def with_plain_attention(program: Any) -> Any:
    """The exported program with fused attention taken apart as PyTorch does it; itself if it has none."""
    import torch

    fused = torch.ops.aten.scaled_dot_product_attention.default
    if all(node.target is not fused for node in program.graph.nodes):
        return program
    return program.run_decompositions({fused: _plain})


def _plain(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """``aten::_scaled_dot_product_attention_math``, which would add a mask of flags as ones and zeros."""
    import torch

    if attn_mask is not None and attn_mask.dtype == torch.bool:
        nothing = torch.zeros((), dtype=query.dtype, device=query.device)
        attn_mask = nothing.masked_fill(~attn_mask, float("-inf"))
    plain = torch.ops.aten._scaled_dot_product_attention_math.default  # noqa: SLF001
    answer, _ = plain(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )
    return answer
