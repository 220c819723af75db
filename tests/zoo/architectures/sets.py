"""Networks over sets of any size, padded and masked."""

import torch
from torch import nn


class DeepSets(nn.Module):
    def __init__(self, features=5, width=16):
        super().__init__()
        self.item = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width))
        self.whole = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, items, mask):
        hidden = self.item(items)
        keep = mask.unsqueeze(-1)
        total = torch.where(keep, hidden, torch.zeros_like(hidden)).sum(1)
        largest = hidden.masked_fill(~keep, float("-inf")).amax(1)
        return self.whole(torch.cat([total / keep.sum(1), largest], dim=-1))


class AttentionPooling(nn.Module):
    """Learned queries look at the items of a bag (multiple instance learning)."""

    def __init__(self, features=6, width=16, queries=3):
        super().__init__()
        self.lift = nn.Linear(features, width)
        self.query = nn.Parameter(torch.randn(1, queries, width))
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.head = nn.Linear(queries * width, 2)

    def forward(self, items, mask):
        hidden = torch.relu(self.lift(items))
        query = self.query.expand(items.shape[0], -1, -1)
        pooled, weights = self.attention(query, hidden, hidden, key_padding_mask=~mask)
        return {"logits": self.head(pooled.flatten(1)), "attention": weights}
