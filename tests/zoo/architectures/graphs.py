"""Layers over graphs."""

import torch
from torch import nn


class GraphScatter(nn.Module):
    """Messages along the edges of one graph, summed where they arrive; a result for each node."""

    def __init__(self, features=5, width=8, classes=3):
        super().__init__()
        self.message = nn.Linear(2 * features, width)
        self.update = nn.Linear(features + width, classes)

    def forward(self, nodes, edges):
        source, target = edges[0], edges[1]
        message = torch.relu(self.message(torch.cat([nodes[source], nodes[target]], dim=-1)))
        total = torch.zeros(nodes.shape[0], message.shape[1], dtype=message.dtype)
        total = total.index_add(0, target, message)
        degree = torch.zeros(nodes.shape[0], dtype=message.dtype)
        degree = degree.scatter_add(0, target, torch.ones_like(target, dtype=message.dtype))
        mean = total / degree.clamp(min=1).unsqueeze(-1)
        return self.update(torch.cat([nodes, mean], dim=-1))


class GraphAttention(nn.Module):
    """Attention along the edges of dense adjacency matrices, one graph a row."""

    def __init__(self, features=5, width=8, heads=2):
        super().__init__()
        self.heads = heads
        self.lift = nn.Linear(features, width * heads, bias=False)
        self.source = nn.Parameter(torch.randn(heads, width))
        self.target = nn.Parameter(torch.randn(heads, width))
        self.head = nn.Linear(width * heads, 3)

    def forward(self, nodes, adjacency):
        hidden = self.lift(nodes).unflatten(-1, (self.heads, -1))
        score = (hidden * self.source).sum(-1).unsqueeze(2) + (hidden * self.target).sum(-1).unsqueeze(1)
        score = nn.functional.leaky_relu(score, 0.2)
        linked = (adjacency > 0) | torch.eye(adjacency.shape[-1], dtype=torch.bool)
        weight = torch.softmax(score.masked_fill(~linked.unsqueeze(-1), float("-inf")), dim=2)
        mixed = torch.einsum("bijh,bjhw->bihw", weight, hidden).flatten(2)
        return self.head(nn.functional.elu(mixed))
