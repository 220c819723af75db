"""Projects whose model is PyTorch's, converted for Triton's PyTorch backend."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch


@pytest.fixture
def torch_project(tmp_path):
    """Makes projects: ``torch_project(code, samples, save="weights", **recipe)``.

    It gives the module and the recipe file. ``save`` is ``weights``, or a function that writes the module
    into a folder and gives the name of its file.
    """

    def make(code: str, samples: dict[str, Any], save: Any = "weights", **recipe: Any) -> tuple[Any, Path]:
        home = tmp_path / "project"
        home.mkdir(exist_ok=True)
        source = "import torch\nfrom torch import nn\n\n" + textwrap.dedent(code)
        (home / "net.py").write_text(source)
        space: dict[str, Any] = {}
        exec(compile(source, str(home / "net.py"), "exec"), space)
        torch.manual_seed(0)
        module = space["Net"]().eval()
        np.savez(home / "samples.npz", **samples)
        told: dict[str, Any] = {"path": "weights.pt", "module": {"file": "net.py", "class": "Net"}}
        if save == "weights":
            torch.save(module.state_dict(), home / "weights.pt")
        else:
            told = {"path": save(module, home)}
        document = {
            "name": "model",
            "source": told,
            "samples": "samples.npz",
            "targets": ["pytorch"],
            **recipe,
        }
        (home / "recipe.yaml").write_text(json.dumps(document))
        return module, home / "recipe.yaml"

    return make


@pytest.fixture
def convert(repobuild_cli, tmp_path):
    """Convert a recipe into ``tmp_path/models`` with trust in modules and TorchScript."""

    def run(recipe: Path, *words: Any) -> Any:
        vouched = ("--trust", "module", "--trust", "torchscript")
        return repobuild_cli("convert", recipe, "-r", tmp_path / "models", *vouched, *words)

    return run


@pytest.fixture
def version(tmp_path):
    """The folder of the first version of the model."""
    return tmp_path / "models" / "model" / "1"
