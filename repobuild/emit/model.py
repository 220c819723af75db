"""Stages a model folder: version, configuration and warm-up samples, as Triton will see them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repobuild.artifact import Artifact, Library
from repobuild.compilers.interface import Compiler
from repobuild.emit import warmup
from repobuild.emit.config import CONFIG_FILE, complete_serving, order_mistakes, render_config
from repobuild.emit.labels import make_labels
from repobuild.emit.libraries import place_libraries
from repobuild.emit.owners import refuse_owned
from repobuild.emit.versions import Existing, look, next_version, settle_config
from repobuild.emit.workshop import Workshop
from repobuild.errors import Evidence, InputInvalid, from_oserror
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.tensors import Batch, Signature
from repobuild.triton import parse_config

LARGEST_BATCH = 65536
CLASSES = "classes:"
"""Begins the parameter that holds the classes behind an index, as a JSON list."""


@dataclass(frozen=True, slots=True)
class Emission:
    """A staged model folder.

    Attributes:
        folder: The folder, in a repository of its own.
        version: The version folder in it.
        signature: The model's tensors, of the outputs those that the configuration serves.
        config: The configuration, as a ModelConfig message.
        config_text: config.pbtxt.
        kept: Whether that is the user's own, which stays as it is.
        warmup_files: Warm-up files that repobuild made.
        existing: The model's folder in the repository as it was looked at.
        notes: What was decided for the user.
        libraries: What it takes its custom operators from.
    """

    folder: Path
    version: int
    signature: Signature
    config: Any
    config_text: str
    kept: bool
    warmup_files: tuple[str, ...]
    existing: Existing | None
    notes: tuple[str, ...]
    libraries: tuple[Library, ...] = ()


def emit(
    shop: Workshop,
    recipe: Recipe,
    artifact: Artifact,
    compiler: Compiler,
    max_batch_size: int,
    warm: Batch,
    labels: Mapping[str, Sequence[str]] | None = None,
    classes: Mapping[str, Sequence[str]] | None = None,
    *,
    update_config: bool = False,
    allow_schema_change: bool = False,
) -> Emission:
    """Write the model folder into the workshop.

    Args:
        shop: The build's workshop.
        recipe: Name and ``serving:`` section.
        artifact: The checked artifact; it is moved into the version folder.
        compiler: What made it; it knows Triton's backend for it.
        max_batch_size: 0 without a batch dimension.
        warm: A request in the inputs' own types, of one row with a batch dimension.
        labels: Text of each element by output, for label files.
        classes: The classes behind the index by output, for those that serve an index; clients read them from
            the parameters of the configuration. A label file would mislead there: Triton names an element by
            its position, not by its value.
        update_config: Whether a configuration of the user's may be brought up to date.
        allow_schema_change: Whether inputs and outputs may differ from the version before.

    Raises:
        InputInvalid: ``serving:`` does not fit the model, or the repository's present configuration does not.
        EnvironmentLacking: The file system refuses.
    """
    signature = artifact.signature
    if max_batch_size > LARGEST_BATCH:
        raise InputInvalid(
            "serving-unfit",
            f"max_batch_size {max_batch_size} is more than any server can hold",
            (recipe_evidence(recipe, ("serving", "max_batch_size"), f"at most {LARGEST_BATCH}"),),
            "Triton allocates and warms up for it; some hundreds are already large",
        )
    serving = complete_serving(
        recipe.serving, batched=signature.batched, cpu_only=True, parameters=compiler.parameters
    )
    _prefers_possible_sizes(serving, max_batch_size, recipe)
    for name, names in (classes or {}).items():
        serving.parameters[f"{CLASSES}{name}"].string_value = json.dumps(list(names), ensure_ascii=False)
    placed = place_libraries(serving, artifact.libraries)
    samples = warmup.make_warmup(signature, warm, max_batch_size)
    texts = make_labels(labels or {})
    rendered = render_config(
        recipe.name, compiler.backend, signature, serving, max_batch_size, samples, texts.by_output
    )
    refuse_owned(shop.repository, shop.state, recipe.name)
    existing = look(shop.repository, recipe.name)
    home = shop.repository / recipe.name
    settled = settle_config(
        existing,
        rendered,
        signature,
        home,
        update=update_config,
        allow_schema_change=allow_schema_change,
    )
    text = settled.text
    version = next_version(existing, shop.state, recipe.name)
    config = parse_config(text, home / CONFIG_FILE)
    _serves_new_version(config, version, recipe)
    if compiler.form == "torchscript":
        _keeps_order(config, signature, home)
    folder = shop.models / recipe.name
    ours = not settled.kept
    try:
        if text != rendered:
            _copy_surroundings(home, folder)
        (folder / str(version)).mkdir(parents=True)
        for made in artifact.files:
            made.rename(folder / str(version) / made.name)
        if ours:
            (folder / warmup.FOLDER).mkdir(exist_ok=True)
            for name, data in samples.files.items():
                (folder / warmup.FOLDER / name).write_bytes(data)
            for name, data in texts.files.items():
                (folder / name).write_bytes(data)
            for name, path in placed.files.items():
                shutil.copyfile(path, folder / name)
        (folder / CONFIG_FILE).write_bytes(text.encode())
    except OSError as problem:
        raise from_oserror(problem, "writing the staged model") from problem
    named = {o.name for o in config.output}
    served = tuple(o for o in signature.outputs if o.name in named)
    return Emission(
        folder=folder,
        version=version,
        signature=Signature(signature.inputs, served, signature.batched),
        config=config,
        config_text=text,
        kept=settled.kept,
        warmup_files=tuple(sorted(samples.files)) if ours else (),
        existing=existing,
        notes=(*settled.notes, *(placed.notes if ours else ())),
        libraries=artifact.libraries,
    )


def _prefers_possible_sizes(serving: Any, max_batch_size: int, recipe: Recipe) -> None:
    """Sizes against the max_batch_size that the model gets, which need not be the recipe's own."""
    sizes = serving.dynamic_batching.preferred_batch_size
    for index, size in enumerate(sizes):
        if size > max_batch_size:
            place = ("serving", "dynamic_batching", "preferred_batch_size", index)
            raise InputInvalid(
                "serving-unfit",
                f"preferred batch size {size} is larger than max_batch_size, which is {max_batch_size}",
                (recipe_evidence(recipe, place, f"at most {max_batch_size}"),),
                "set max_batch_size under serving:, or prefer smaller batches",
            )


def _serves_new_version(config: Any, version: int, recipe: Recipe) -> None:
    policy = config.version_policy
    if policy.WhichOneof("policy_choice") == "specific" and version not in policy.specific.versions:
        raise InputInvalid(
            "serving-unfit",
            f"version_policy serves versions {list(policy.specific.versions)}, and this would be {version}",
            (recipe_evidence(recipe, ("serving", "version_policy"), f"{version} is not among them"),),
            "add it, or serve the latest versions",
        )


def _keeps_order(config: Any, signature: Signature, home: Path) -> None:
    wrong = list(order_mistakes(config, signature))
    if wrong:
        raise InputInvalid(
            "config-edited",
            "config.pbtxt would serve tensors of the model under names of others",
            tuple(Evidence(line, file=str(home / CONFIG_FILE)) for line in wrong),
            "put them in that order, or pass --update-config",
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
