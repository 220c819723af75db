"""Models of tables: embeddings of several inputs, crossed features, flags."""

import torch
from torch import nn


class WideAndDeep(nn.Module):
    def __init__(self, users=50, items=40, countries=7):
        super().__init__()
        self.user = nn.Embedding(users, 8)
        self.item = nn.Embedding(items, 8)
        self.country = nn.Embedding(countries, 4)
        self.wide = nn.Embedding(users * countries, 1)
        self.countries = countries
        self.deep = nn.Sequential(nn.Linear(8 + 8 + 4 + 3, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, user_id, item_id, country, dense):
        crossed = user_id * self.countries + country
        deep = self.deep(
            torch.cat([self.user(user_id), self.item(item_id), self.country(country), dense], dim=-1)
        )
        return torch.sigmoid(deep + self.wide(crossed)).squeeze(-1)


class DeepFm(nn.Module):
    """A factorisation machine and a network over the same embeddings of fields."""

    def __init__(self, sizes=(11, 23, 5, 17), width=6):
        super().__init__()
        offsets = torch.tensor([0, *sizes[:-1]]).cumsum(0)
        self.register_buffer("offsets", offsets)
        self.linear = nn.Embedding(sum(sizes), 1)
        self.factors = nn.Embedding(sum(sizes), width)
        self.network = nn.Sequential(nn.Linear(len(sizes) * width, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, fields):
        index = fields + self.offsets
        factors = self.factors(index)
        pairs = (factors.sum(1).square() - factors.square().sum(1)).sum(1) / 2
        return self.linear(index).sum((1, 2)) + pairs + self.network(factors.flatten(1)).squeeze(1)


class Telemetry(nn.Module):
    """Reads flags, bytes and counters, and answers in several types."""

    def __init__(self, width=8):
        super().__init__()
        self.byte = nn.Embedding(256, width)
        self.head = nn.Linear(width + 3 + 2, 4)

    def forward(self, flags, payload, counters):
        text = self.byte(payload.to(torch.int64)).mean(1)
        count = torch.log1p(counters.clamp(min=0).to(torch.float32)) - 5
        score = self.head(torch.cat([text, flags.to(torch.float32), count], dim=-1))
        label = score.argmax(-1)
        return {
            "score": score,
            "label": label,
            "alarm": (score[:, 0] > 0) | flags.any(-1),
            "total": counters.sum(-1, dtype=torch.int32),
            "first": payload[:, 0],
        }


class NestedOutput(nn.Module):
    """Answers with dictionaries and tuples inside each other."""

    def __init__(self, features=6):
        super().__init__()
        self.trunk = nn.Linear(features, 8)
        self.age = nn.Linear(8, 1)
        self.box = nn.Linear(8, 4)
        self.colour = nn.Linear(8, 3)

    def forward(self, x):
        hidden = torch.tanh(self.trunk(x))
        box = self.box(hidden)
        colour = self.colour(hidden)
        return {
            "age": self.age(hidden),
            "box": {"centre": box[:, :2], "size": box[:, 2:].exp()},
            "colour": (colour, torch.softmax(colour, dim=-1)),
        }
