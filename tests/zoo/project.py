"""What a user would hand in for an architecture: recipe, module, weights and samples in one folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.zoo.architecture import FOLDER, Architecture
from tests.zoo.modules import save_weights

MAX_BATCH_SIZE = 8
RECIPE = "recipe.yaml"


def write_project(architecture: Architecture, folder: Path) -> Path:
    """Make the folder with recipe, module, weights and samples.

    Returns:
        The recipe.
    """
    import numpy as np

    folder.mkdir(parents=True)
    shutil.copyfile(FOLDER / architecture.file, folder / architecture.file)
    save_weights(architecture, folder / architecture.weights)
    np.savez(folder / "samples.npz", **architecture.samples())
    recipe = folder / RECIPE
    recipe.write_text(json.dumps(recipe_of(architecture), indent=1), encoding="utf-8")
    return recipe


def recipe_of(architecture: Architecture) -> dict[str, object]:
    """The recipe as a document."""
    return {
        "name": architecture.name,
        "source": {
            "path": architecture.weights,
            "kind": "torch",
            "module": {
                "file": architecture.file,
                "class": architecture.cls,
                "kwargs": dict(architecture.kwargs),
            },
        },
        "samples": "samples.npz",
        "export": {"dynamic_axes": architecture.dynamic_axes, "constants": dict(architecture.constants)},
        "tolerance": {"atol": architecture.atol, "rtol": architecture.rtol},
        "serving": {"max_batch_size": MAX_BATCH_SIZE if architecture.batched else 0},
    }
