"""Attention written with torch alone."""

import torch
from torch import nn


class MaskedEncoder(nn.Module):
    """nn.TransformerEncoder with a key padding mask."""

    def __init__(self, words=40, width=16, classes=4, depth=2):
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.place = nn.Embedding(64, width)
        layer = nn.TransformerEncoderLayer(width, 4, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(width, classes)

    def forward(self, ids, padding):
        place = torch.arange(ids.shape[1], device=ids.device)
        hidden = self.encoder(self.word(ids) + self.place(place), src_key_padding_mask=padding)
        keep = (~padding).unsqueeze(-1).to(hidden.dtype)
        return self.head((hidden * keep).sum(1) / keep.sum(1))


class Rotary(nn.Module):
    """Causal attention with rotated queries and keys, written with einsum."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm = nn.RMSNorm(width)
        size = width // heads
        self.register_buffer("frequency", 1.0 / 10000 ** (torch.arange(0, size, 2) / size), persistent=False)

    def turn(self, x):
        angle = torch.einsum("t,f->tf", torch.arange(x.shape[1], dtype=x.dtype), self.frequency)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        score = torch.einsum("bqhd,bkhd->bhqk", self.turn(q), self.turn(k)) / q.shape[-1] ** 0.5
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        weight = torch.softmax(score.masked_fill(future, float("-inf")), dim=-1)
        return x + self.out(torch.einsum("bhqk,bkhd->bqhd", weight, v).flatten(2))


class Translator(nn.Module):
    """nn.Transformer with a causal target: two free lengths in two inputs.

    Unless it is told that the mask is causal, nn.Transformer looks at the mask's values to find out.
    """

    def __init__(self, words=30, width=16, causal=True):
        super().__init__()
        self.causal = causal
        self.word = nn.Embedding(words, width)
        self.body = nn.Transformer(width, 2, 1, 1, 32, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, source, target):
        steps = target.shape[1]
        future = torch.ones(steps, steps, dtype=torch.bool).triu(1)
        answer = self.body(self.word(source), self.word(target), tgt_mask=future, tgt_is_causal=self.causal)
        return self.head(answer)
