"""Stages a model folder: version, configuration and warm-up samples, as Triton will see them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repobuild.artifact import Artifact
from repobuild.emit import warmup
from repobuild.emit.config import CONFIG_FILE, complete_serving, render_config
from repobuild.emit.versions import Existing, look, next_version, settle_config, text_digest
from repobuild.emit.workshop import Workshop
from repobuild.errors import from_oserror
from repobuild.recipe.types import Recipe
from repobuild.tensors import Batch, Signature
from repobuild.triton import parse_config


@dataclass(frozen=True, slots=True)
class Emission:
    """A staged model folder.

    Attributes:
        folder: The folder, in a repository of its own.
        version: The version folder in it.
        signature: The model's tensors.
        config: The configuration, as a ModelConfig message.
        config_digest: sha256 of config.pbtxt when repobuild rendered it, empty when the user's own is kept.
        warmup_files: Warm-up files that repobuild made.
        existing: The model's folder in the repository as it was looked at.
        notes: What was decided for the user.
    """

    folder: Path
    version: int
    signature: Signature
    config: Any
    config_digest: str
    warmup_files: tuple[str, ...]
    existing: Existing | None
    notes: tuple[str, ...]

    @property
    def waits(self) -> bool:
        """Whether the dynamic batcher waits for further requests."""
        return bool(self.config.dynamic_batching.max_queue_delay_microseconds)


def emit(
    shop: Workshop,
    recipe: Recipe,
    artifact: Artifact,
    backend: str,
    made_from: str,
    max_batch_size: int,
    wire: Batch,
) -> Emission:
    """Write the model folder into the workshop.

    Args:
        shop: The build's workshop.
        recipe: Name and ``serving:`` section.
        artifact: The checked artifact; it is moved into the version folder.
        backend: Triton's backend for it.
        made_from: What the model is, in one line.
        max_batch_size: 0 without a batch dimension.
        wire: Rows in the inputs' own types, for warm-up.

    Raises:
        InputInvalid: ``serving:`` does not fit the model, or the repository's present configuration does not.
        EnvironmentLacking: The file system refuses.
    """
    signature = artifact.signature
    serving = complete_serving(recipe.serving, batched=signature.batched, cpu_only=True)
    warm = warmup.make_warmup(signature, wire, max_batch_size)
    rendered = render_config(recipe.name, backend, made_from, signature, serving, max_batch_size, warm)
    existing = look(shop.repository, shop.state, recipe.name)
    home = shop.repository / recipe.name
    text = settle_config(existing, rendered, signature, home / CONFIG_FILE)
    version = next_version(existing, shop.state, recipe.name)
    folder = shop.models / recipe.name
    try:
        if existing is not None and text == existing.text:
            _copy_surroundings(home, folder)
        (folder / str(version)).mkdir(parents=True)
        artifact.path.rename(folder / str(version) / artifact.path.name)
        if text == rendered:
            (folder / warmup.FOLDER).mkdir(exist_ok=True)
            for name, data in warm.files.items():
                (folder / warmup.FOLDER / name).write_bytes(data)
        (folder / CONFIG_FILE).write_text(text, encoding="utf-8")
    except OSError as problem:
        raise from_oserror(problem, "writing the staged model") from problem
    ours = text == rendered
    kept = "config.pbtxt was edited by hand and fits, so it stays; serving: of the recipe is not applied"
    return Emission(
        folder=folder,
        version=version,
        signature=signature,
        config=parse_config(text, home / CONFIG_FILE),
        config_digest=text_digest(text) if ours else "",
        warmup_files=tuple(sorted(warm.files)) if ours else (),
        existing=existing,
        notes=() if ours else (kept,),
    )


def _copy_surroundings(home: Path, folder: Path) -> None:
    """What lies beside the version folders: labels, warm-up, whatever the kept configuration names."""
    folder.mkdir()
    for path in home.iterdir():
        if path.name.isdigit():
            continue
        if path.is_dir():
            shutil.copytree(path, folder / path.name)
        else:
            shutil.copyfile(path, folder / path.name)
