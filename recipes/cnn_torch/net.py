"""A small convolutional network that tells which half of a picture is brighter."""

from __future__ import annotations

import torch
from torch import nn


class Halves(nn.Module):
    """Two convolutions and a linear layer.

    Args:
        channels: Channels of the first convolution.
    """

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(16 * channels, 2))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Scores of left and right, ``[rows, 2]``, of grey pictures ``[rows, 1, 16, 16]``, 0 to 1."""
        return self.head(self.features(image))
