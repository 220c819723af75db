"""Networks of dense layers: rows, pairs of rows, sets and experts."""

import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self, features=12, hidden=32, classes=5):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(features, hidden),
            nn.BatchNorm1d(hidden),
            nn.GELU(),
            nn.Dropout(0.3),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )

    def forward(self, x):
        return torch.softmax(self.body(x), dim=-1)


class Autoencoder(nn.Module):
    def __init__(self, features=16, code=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, 24), nn.Tanh(), nn.Linear(24, code))
        self.decoder = nn.Sequential(nn.Linear(code, 24), nn.Tanh(), nn.Linear(24, features))

    def forward(self, x):
        code = self.encoder(x)
        reconstruction = self.decoder(code)
        return {
            "reconstruction": reconstruction,
            "code": code,
            "error": (reconstruction - x).square().mean(dim=1),
        }


class VaeEncoder(nn.Module):
    """Draws from the posterior while training; answers with its mean when evaluated."""

    def __init__(self, code=6):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
        )
        self.mean = nn.Linear(16 * 4 * 4, code)
        self.log_variance = nn.Linear(16 * 4 * 4, code)

    def forward(self, image):
        hidden = self.stem(image)
        mean = self.mean(hidden)
        if self.training:
            return mean + torch.randn_like(mean) * torch.exp(self.log_variance(hidden) / 2)
        return mean


class Siamese(nn.Module):
    def __init__(self, features=10, width=16):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(features, width), nn.ELU(), nn.Linear(width, width))

    def forward(self, left, right):
        a = nn.functional.normalize(self.tower(left), dim=-1)
        b = nn.functional.normalize(self.tower(right), dim=-1)
        return {"similarity": (a * b).sum(-1), "distance": torch.linalg.vector_norm(a - b, dim=-1)}


class NBeats(nn.Module):
    """Residual blocks, each of which explains a part of the past and forecasts from it."""

    def __init__(self, past=24, future=6, blocks=3, width=32):
        super().__init__()
        self.past = past
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(past, width),
                nn.ReLU(),
                nn.Linear(width, width),
                nn.ReLU(),
                nn.Linear(width, past + future),
            )
            for _ in range(blocks)
        )

    def forward(self, history):
        scale = history.abs().amax(dim=1, keepdim=True).clamp(min=1e-6)
        residual = history / scale
        forecast = 0
        for block in self.blocks:
            out = block(residual)
            residual = residual - out[:, : self.past]
            forecast = forecast + out[:, self.past :]
        return forecast * scale, residual * scale


class MixtureOfExperts(nn.Module):
    """Each row is answered by the best of the experts, whose weights are gathered."""

    def __init__(self, features=8, experts=6, best=2, width=12):
        super().__init__()
        self.best = best
        self.gate = nn.Linear(features, experts)
        self.first = nn.Parameter(torch.empty(experts, features, width))
        self.second = nn.Parameter(torch.empty(experts, width, features))
        nn.init.normal_(self.first, std=0.3)
        nn.init.normal_(self.second, std=0.3)

    def forward(self, x):
        score, expert = torch.topk(self.gate(x), self.best, dim=-1)
        share = torch.softmax(score, dim=-1)
        hidden = torch.relu(torch.einsum("bf,bkfw->bkw", x, self.first[expert]))
        out = torch.einsum("bkw,bkwf->bkf", hidden, self.second[expert])
        return {"output": (out * share.unsqueeze(-1)).sum(1), "expert": expert}
