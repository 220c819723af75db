"""Which ensemble a model of the repository belongs to; its records tell."""

from __future__ import annotations

import json
from pathlib import Path

from repobuild.emit.versions import version_numbers
from repobuild.errors import Evidence, InputInvalid

KEY = "ensemble"


def ensemble_of(state: Path, model: str) -> str | None:
    """The ensemble whose step, or which itself, the newest version of a model is; ``None`` for others.

    Args:
        state: ``<repository>.repobuild``.
        model: Model name.
    """
    versions = version_numbers(state / model)
    if not versions:
        return None
    try:
        text = (state / model / str(versions[-1]) / "manifest.json").read_text(encoding="utf-8")
        owner = json.loads(text).get(KEY)
    except (OSError, ValueError, AttributeError):
        return None
    return str(owner) if owner is not None else None


def refuse_owned(repository: Path, state: Path, model: str) -> None:
    """Keep a build of one model from changing what an ensemble is made of.

    Raises:
        InputInvalid: The model belongs to an ensemble.
    """
    owner = ensemble_of(state, model)
    if owner is None or not (repository / model).exists():
        return
    what = "is an ensemble" if owner == model else f"is a step of the ensemble '{owner}'"
    raise InputInvalid(
        "ensemble-owned",
        f"the model '{model}' of the repository {what}",
        (Evidence("a version of its own would leave the ensemble without the one it names"),),
        f"build the recipe of '{owner}', or give the model another name",
    )
