"""The classifier: the mean of word vectors, and a layer on it."""

import torch
from torch import nn


class Topics(nn.Module):
    """Scores of topics for the numbers of words; 0 is no word."""

    def __init__(self, words: int, topics: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, 16, padding_idx=0)
        self.layer = nn.Linear(16, topics)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """``ids`` INT64 [rows, length] to scores FP32 [rows, topics]."""
        mask = (ids != 0).unsqueeze(-1).to(torch.float32)
        vectors = (self.embedding(ids) * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)
        return self.layer(vectors)
