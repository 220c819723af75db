"""Trains the network of the example and saves it with its samples beside this file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from net import Halves
from safetensors.torch import save_file

STEPS = 60


def main() -> None:
    """Train, and write ``weights.safetensors`` and ``samples.npz``."""
    torch.manual_seed(0)
    images = torch.rand(256, 1, 16, 16)
    truth = (images[..., 8:].mean((1, 2, 3)) > images[..., :8].mean((1, 2, 3))).long()
    net = Halves()
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(images), truth)
        loss.backward()
        optimiser.step()
    here = Path(__file__).parent
    save_file(net.state_dict(), here / "weights.safetensors")
    np.savez(here / "samples.npz", image=images[:64].numpy())
    print(f"trained on {len(images)} pictures, loss {loss.item():.3f}, wrote {here.name}/weights.safetensors")


if __name__ == "__main__":
    main()
