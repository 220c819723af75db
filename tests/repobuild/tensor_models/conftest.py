"""Projects whose model is a PyTorch module: its code, its weights, samples and a recipe."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch


class Net:
    """A folder with ``net.py``, ``weights.pt``, ``samples.npz`` and ``recipe.yaml``."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.recipe = home / "recipe.yaml"

    def module(self, cls: str = "Net", **kwargs: Any) -> torch.nn.Module:
        """The module with its weights, in eval mode."""
        space: dict[str, Any] = {}
        exec(compile((self.home / "net.py").read_text(), str(self.home / "net.py"), "exec"), space)
        torch.manual_seed(0)
        made = space[cls](**kwargs)
        return made.eval()

    def edit(self, **keys: Any) -> None:
        """Replace keys of the recipe; sections are merged."""
        document = json.loads(self.recipe.read_text())
        for key, value in keys.items():
            merged = isinstance(value, dict) and isinstance(document.get(key), dict)
            document[key] = {**document[key], **value} if merged else value
        self.recipe.write_text(json.dumps(document))


@pytest.fixture
def net(tmp_path):
    """Makes a project: ``net(code, samples, max_batch_size=8, export={...})``."""

    def make(
        code: str, samples: dict[str, Any], *, kwargs: dict[str, Any] | None = None, **recipe: Any
    ) -> Net:
        home = tmp_path / "project"
        home.mkdir(exist_ok=True)
        (home / "net.py").write_text("import torch\nfrom torch import nn\n\n" + textwrap.dedent(code))
        made = Net(home)
        module = made.module(**(kwargs or {}))
        torch.save(module.state_dict(), home / "weights.pt")
        np.savez(home / "samples.npz", **samples)
        document = {
            "name": "model",
            "source": {
                "path": "weights.pt",
                "kind": "torch",
                "module": {"file": "net.py", "class": "Net", "kwargs": kwargs or {}},
            },
            "samples": "samples.npz",
            "serving": {"max_batch_size": 8},
            **recipe,
        }
        made.recipe.write_text(json.dumps(document))
        return made

    return make


@pytest.fixture
def convert(repobuild_cli, tmp_path):
    """Convert a project into ``tmp_path/repository``: ``convert(net)``."""

    def run(project: Any, *words: Any, trust: tuple[str, ...] = ("module",)) -> Any:
        home = getattr(project, "recipe", project)
        vouched = [w for kind in trust for w in ("--trust", kind)]
        return repobuild_cli("convert", home, "--repository", tmp_path / "repository", *vouched, *words)

    return run


LINEAR = """
    class Net(nn.Module):
        def __init__(self, width=3):
            super().__init__()
            self.lin = nn.Linear(4, width)

        def forward(self, x):
            return self.lin(x)
"""


@pytest.fixture
def linear():
    """Code of a module with one linear layer."""
    return LINEAR


def rows(count: int, *dims: int, seed: int = 0) -> Any:
    """Seeded standard normal float32 rows."""
    return np.random.default_rng(seed).standard_normal((count, *dims)).astype(np.float32)
