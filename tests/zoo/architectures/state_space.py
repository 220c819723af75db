"""State space models: the scan step by step, and all steps at once."""

import torch
from torch import nn


class Scan(nn.Module):
    """A selective scan over a fixed number of steps, written as the recurrence it is."""

    def __init__(self, features=4, state=6):
        super().__init__()
        self.rate = nn.Parameter(torch.zeros(features, state))
        self.step = nn.Linear(features, features)
        self.enter = nn.Linear(features, state)
        self.leave = nn.Linear(features, state)
        self.skip = nn.Parameter(torch.ones(features))

    def forward(self, x):
        delta = nn.functional.softplus(self.step(x)).unsqueeze(-1)
        keep = torch.exp(-delta * torch.exp(self.rate))
        put = delta * self.enter(x).unsqueeze(2) * x.unsqueeze(-1)
        leave = self.leave(x).unsqueeze(2)
        state = torch.zeros_like(put[:, 0])
        out = []
        for t in range(x.shape[1]):
            state = keep[:, t] * state + put[:, t]
            out.append((state * leave[:, t]).sum(-1))
        return torch.stack(out, dim=1) + self.skip * x


class Mamba(nn.Module):
    """The same kind of scan as one product with a decaying triangle, for any number of steps."""

    def __init__(self, features=6, width=12, heads=3, state=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.RMSNorm(features)
        self.enter = nn.Linear(features, 2 * width + 2 * state + heads)
        self.split = [width, width, state, state, heads]
        self.filter = nn.Conv1d(width, width, 4, groups=width, padding=3)
        self.rate = nn.Parameter(torch.zeros(heads))
        self.bias = nn.Parameter(torch.zeros(heads))
        self.leave = nn.Linear(width, features)

    def forward(self, x):
        steps = x.shape[1]
        gate, value, key, query, delta = self.enter(self.norm(x)).split(self.split, dim=-1)
        value = nn.functional.silu(self.filter(value.transpose(1, 2))[..., :steps].transpose(1, 2))
        delta = nn.functional.softplus(delta + self.bias)
        decay = (-delta * torch.exp(self.rate)).transpose(1, 2).unsqueeze(-1).expand(-1, -1, -1, steps)
        inside = torch.ones(steps, steps, dtype=torch.bool).tril()
        decay = decay.masked_fill(~inside.tril(-1), 0).cumsum(-2)
        weight = decay.masked_fill(~inside, float("-inf")).exp()
        weight = weight * (query @ key.transpose(1, 2)).unsqueeze(1)
        value = (value.unflatten(-1, (self.heads, -1)) * delta.unsqueeze(-1)).transpose(1, 2)
        mixed = (weight @ value).transpose(1, 2).flatten(2)
        return x + self.leave(mixed * nn.functional.silu(gate))
