"""Which version a staged model becomes, and whether the repository's own config.pbtxt may stay or change."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from repobuild.artifact import tree_digests
from repobuild.emit import warmup
from repobuild.emit.config import (
    CONFIG_FILE,
    config_mistakes,
    is_ours,
    read_config,
    same_interface,
    text_digest,
)
from repobuild.emit.present import graph_interface
from repobuild.errors import Evidence, InputInvalid, evidence
from repobuild.tensors import Signature
from repobuild.triton import format_config, parse_config

LARGEST_VERSION = 2**63 - 1
"""Triton holds versions in a signed 64-bit integer."""


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
        InputInvalid: Its config.pbtxt does not parse, or another model has this name but for its case.
    """
    folder = repository / model
    _refuse_case_clash(repository, model)
    if not folder.exists():
        return None
    read = read_config(folder)
    return Existing(version_numbers(folder), read[0] if read else None)


def _refuse_case_clash(repository: Path, model: str) -> None:
    """File systems and buckets that are blind to case would hold one model under both names."""
    names = [p.name for p in repository.iterdir()] if repository.is_dir() else []
    for name in names:
        if name != model and name.casefold() == model.casefold():
            raise InputInvalid(
                "model-name-clash",
                f"the repository has a model '{name}', which differs from '{model}' in case only",
                (
                    Evidence(
                        "a file system that is blind to case takes both for one", file=str(repository / name)
                    ),
                ),
                "use the same spelling, or another name",
            )


def next_version(existing: Existing | None, state: Path, model: str) -> int:
    """One more than any version that the repository has, or ever had by the manifests.

    Raises:
        InputInvalid: There is no larger number.
    """
    known = [*(existing.versions if existing else ()), *version_numbers(state / model)]
    if max(known, default=0) >= LARGEST_VERSION:
        raise InputInvalid(
            "version-too-large",
            f"version {max(known)} of '{model}' leaves no number for another one",
            evidence([f"Triton's versions go up to {LARGEST_VERSION}"]),
            "remove that version, or give the model another name",
        )
    return max(known, default=0) + 1


@dataclass(frozen=True, slots=True)
class Settled:
    """The configuration that a model folder is to have.

    Attributes:
        text: config.pbtxt.
        kept: Whether it is the user's own, byte for byte.
        notes: What was decided.
    """

    text: str
    kept: bool
    notes: tuple[str, ...] = ()


def settle_config(
    existing: Existing | None,
    rendered: str,
    signature: Signature,
    folder: Path,
    *,
    update: bool = False,
    allow_schema_change: bool = False,
) -> Settled:
    """The config.pbtxt that the model folder is to have.

    Triton has one configuration for all versions of a model. One that describes the new version rightly
    and that repobuild does not own is kept byte for byte.

    Args:
        existing: The model folder as it stands.
        rendered: The configuration made for the new version.
        signature: The new version's tensors.
        folder: The model's folder in the repository.
        update: Whether a configuration of the user's may be brought up to date.
        allow_schema_change: Whether the inputs and outputs may change.

    Raises:
        InputInvalid: The new version has another interface than the present one, or the present
            configuration was written or edited by hand and does not fit.
    """
    if existing is None or existing.text == rendered:
        return Settled(rendered, kept=False)
    file = folder / CONFIG_FILE
    new = parse_config(rendered, CONFIG_FILE)
    old = None if existing.text is None else parse_config(existing.text, file)
    wrong = [] if old is None else list(_misfits(old, new, signature))
    if existing.text is not None and not existing.ours and not wrong:
        note = "config.pbtxt was edited by hand and fits, so it stays; serving: of the recipe is not applied"
        return Settled(existing.text, kept=True, notes=(note,))
    changed = _schema_changes(existing, old, new, signature, folder)
    if changed and not allow_schema_change:
        raise InputInvalid(
            "schema-changed",
            f"the new version of '{new.name}' has other inputs or outputs than version"
            f" {existing.versions[-1]}",
            evidence(changed),
            "Triton has one configuration for all versions of a model: give the new one its own name, or pass"
            " --allow-schema-change and serve only the new version",
        )
    notes = (
        [f"inputs or outputs differ from version {existing.versions[-1]}: {'; '.join(changed)}"]
        if changed
        else []
    )
    if old is None or existing.text is None or existing.ours:
        return Settled(rendered, kept=False, notes=tuple(notes))
    if not update:
        raise InputInvalid(
            "config-edited",
            f"the config.pbtxt of '{new.name}' was written or edited by hand and does not fit the new"
            " version",
            (*(Evidence(w, file=str(file)) for w in wrong), *_difference(existing.text, rendered)),
            "change the file as the difference shows, pass --update-config, or give the model another name",
        )
    text = format_config(brought_up_to_date(old, new, wrong_policy=_serves_listed_versions(old)))
    notes.append(
        "config.pbtxt was brought up to date; its other fields stay, its comments cannot: " + "; ".join(wrong)
    )
    return Settled(text, kept=False, notes=tuple(notes))


def brought_up_to_date(old: Any, new: Any, *, wrong_policy: bool) -> Any:
    """The user's configuration with what the new version needs, and every other field as it was.

    Args:
        old: The user's configuration.
        new: The configuration made for the new version.
        wrong_policy: Whether the version policy would not serve it.
    """
    merged = type(old)()
    merged.CopyFrom(old)
    merged.name = new.name
    merged.backend = new.backend
    for field in ("platform", "default_model_filename"):
        merged.ClearField(field)
    for role in ("input", "output"):
        items = [_tensor_up_to_date(getattr(old, role), item) for item in getattr(new, role)]
        merged.ClearField(role)
        getattr(merged, role).extend(items)
    if (old.max_batch_size > 0) != (new.max_batch_size > 0):
        merged.max_batch_size = new.max_batch_size
    if not new.max_batch_size:
        merged.ClearField("dynamic_batching")
    if new.HasField("model_operations"):
        merged.model_operations.CopyFrom(new.model_operations)
    merged.ClearField("model_warmup")
    merged.model_warmup.extend(_warmup_within(new.model_warmup, merged.max_batch_size))
    if wrong_policy:
        merged.ClearField("version_policy")
    return merged


def _warmup_within(samples: Iterable[Any], largest: int) -> Iterator[Any]:
    """The warm-up samples, none of them larger than the batches that the user allows."""
    names = set()
    for sample in samples:
        if sample.batch_size > max(largest, 1):
            sample.batch_size = max(largest, 1)
            sample.name = warmup.sample_name(sample.batch_size)
        if sample.name not in names:
            names.add(sample.name)
            yield sample


def _tensor_up_to_date(items: Any, new: Any) -> Any:
    """The new item with the fields that the user's own had beside name, type and dims."""
    before = next((i for i in items if i.name == new.name), None)
    item = type(new)()
    item.CopyFrom(new)
    if before is not None and list(before.dims) == list(new.dims) and before.data_type == new.data_type:
        item.CopyFrom(before)
        if new.DESCRIPTOR.fields_by_name.get("label_filename") and new.label_filename:
            item.label_filename = new.label_filename
    return item


def _schema_changes(existing: Existing, old: Any, new: Any, signature: Signature, folder: Path) -> list[str]:
    """How clients see that the new version differs from the present one.

    A configuration that leaves tensors to Triton's auto-complete says nothing of them; the graph of the
    latest version does.
    """
    if not existing.versions:
        return []
    if old is not None and old.input and old.output:
        return same_interface(old, new)
    graph = folder / str(existing.versions[-1]) / "model.onnx"
    present = graph_interface(graph)
    if present is None:
        return []
    want = {
        (role, t.name): (t.dtype.config, tuple(-1 if d is None else d for d in t.shape))
        for role, tensors in (("input", signature.inputs), ("output", signature.outputs))
        for t in tensors
    }
    return [
        f"{role} '{name}': {_shown(present.get((role, name)))} -> {_shown(want.get((role, name)))}"
        for role, name in sorted(present.keys() | want.keys())
        if present.get((role, name)) != want.get((role, name))
    ]


def _shown(tensor: tuple[str, tuple[int, ...]] | None) -> str:
    return "absent" if tensor is None else f"{tensor[0]} {list(tensor[1])}"


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
    for sample in old.model_warmup:
        if sample.batch_size > max(old.max_batch_size, 1):
            yield (
                f"warm-up sample '{sample.name}' has batch_size {sample.batch_size}, which is more than"
                f" max_batch_size, {old.max_batch_size}"
            )
    if _serves_listed_versions(old):
        yield "version_policy lists the versions to serve, and the new one is not among them"
    if old.default_model_filename not in ("", "model.onnx"):
        yield f"default_model_filename is '{old.default_model_filename}'"


def _serves_listed_versions(config: Any) -> bool:
    policy: Literal["latest", "all", "specific"] | None = config.version_policy.WhichOneof("policy_choice")
    return policy == "specific"


def _difference(old: str, new: str) -> tuple[Evidence, ...]:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "config.pbtxt", "wanted", lineterm="")
    return (Evidence("\n".join(list(lines)[:80])),)


def version_numbers(folder: Path) -> tuple[int, ...]:
    """Names that Triton takes for versions: whole numbers without leading zeros."""
    if not folder.is_dir():
        return ()
    names = (p.name for p in folder.iterdir() if p.is_dir())
    return tuple(sorted(int(n) for n in names if n.isascii() and n.isdigit() and (n == "0" or n[0] != "0")))
