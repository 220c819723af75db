"""Which version a staged model becomes, and whether the repository's own config.pbtxt may stay or change."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from repobuild.artifact import tree_digests
from repobuild.emit.config import (
    CONFIG_FILE,
    config_mistakes,
    is_ours,
    read_config,
    same_interface,
    text_digest,
)
from repobuild.errors import Evidence, InputInvalid, evidence
from repobuild.tensors import Signature
from repobuild.triton import parse_config


@dataclass(frozen=True, slots=True)
class Existing:
    """A model folder as it stands in the repository.

    Attributes:
        versions: Version numbers, ascending.
        text: Its config.pbtxt, ``None`` when there is none.
    """

    versions: tuple[int, ...]
    text: str | None

    @property
    def ours(self) -> bool:
        """Whether repobuild wrote the configuration and nobody edited it since."""
        return self.text is not None and is_ours(self.text)

    @property
    def digest(self) -> str:
        """sha256 of config.pbtxt, empty when there is none."""
        return "" if self.text is None else text_digest(self.text)


def look(repository: Path, model: str) -> Existing | None:
    """The model's folder in the repository, ``None`` when there is none.

    Raises:
        InputInvalid: Its config.pbtxt does not parse.
    """
    folder = repository / model
    if not folder.exists():
        return None
    read = read_config(folder)
    return Existing(version_numbers(folder), read[0] if read else None)


def next_version(existing: Existing | None, state: Path, model: str) -> int:
    """One more than any version that the repository has, or ever had by the manifests."""
    known = [*(existing.versions if existing else ()), *version_numbers(state / model)]
    return max(known, default=0) + 1


def settle_config(existing: Existing | None, rendered: str, signature: Signature, file: Path) -> str:
    """The config.pbtxt that the model folder is to have.

    Triton has one configuration for all versions of a model. One that describes the new version rightly
    and that repobuild does not own is kept byte for byte.

    Args:
        existing: The model folder as it stands.
        rendered: The configuration made for the new version.
        signature: The new version's tensors.
        file: Path of the existing configuration, for errors.

    Raises:
        InputInvalid: The new version has another interface than the present one, or the present
            configuration was written or edited by hand and does not fit.
    """
    if existing is None or existing.text is None or existing.text == rendered:
        return rendered
    old, new = parse_config(existing.text, file), parse_config(rendered, CONFIG_FILE)
    changed = same_interface(old, new) if existing.versions else []
    if existing.ours:
        if changed:
            raise InputInvalid(
                "schema-changed",
                f"the new version of '{new.name}' has other inputs or outputs than version"
                f" {existing.versions[-1]}",
                evidence(changed),
                "Triton has one configuration for all versions of a model: give the new one its own name",
            )
        return rendered
    wrong = list(_misfits(old, new, signature))
    if not wrong:
        return existing.text
    raise InputInvalid(
        "config-edited",
        f"the config.pbtxt of '{new.name}' was written or edited by hand and does not fit the new version",
        (*(Evidence(w, file=str(file)) for w in wrong), *_difference(existing.text, rendered)),
        "change the file as the difference shows, or give the model another name",
    )


def equal_version(folder: Path, existing: Existing | None, staged: Path) -> int | None:
    """The latest version when its files equal the staged ones, else ``None``.

    Args:
        folder: The model's folder in the repository.
        existing: What is in it.
        staged: The staged version folder.
    """
    if existing is None or not existing.versions:
        return None
    latest = existing.versions[-1]
    return latest if tree_digests(folder / str(latest)) == tree_digests(staged) else None


def _misfits(old: Any, new: Any, signature: Signature) -> Iterator[str]:
    yield from config_mistakes(old, signature)
    if old.name not in ("", new.name):
        yield f"name '{old.name}' is not that of the folder"
    if (old.backend or "onnxruntime", old.platform or "onnxruntime_onnx") != (
        new.backend,
        "onnxruntime_onnx",
    ):
        yield f"backend '{old.backend}' and platform '{old.platform}' do not load {new.backend} models"
    policy: Literal["latest", "all", "specific"] | None = old.version_policy.WhichOneof("policy_choice")
    if policy == "specific":
        yield "version_policy lists the versions to serve, and the new one is not among them"
    if old.default_model_filename not in ("", "model.onnx"):
        yield f"default_model_filename is '{old.default_model_filename}'"


def _difference(old: str, new: str) -> tuple[Evidence, ...]:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "config.pbtxt", "wanted", lineterm="")
    return (Evidence("\n".join(list(lines)[:80])),)


def version_numbers(folder: Path) -> tuple[int, ...]:
    """Names that Triton takes for versions: whole numbers without leading zeros."""
    if not folder.is_dir():
        return ()
    names = (p.name for p in folder.iterdir() if p.is_dir())
    return tuple(sorted(int(n) for n in names if n.isascii() and n.isdigit() and (n == "0" or n[0] != "0")))
