"""A model's folder as lint sees it: its configurations, versions and files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from repobuild.lint.config_text import read_text
from repobuild.lint.files import Entry, Tree, read_whole
from repobuild.lint.finding import Findings
from repobuild.lint.positions import Positions
from repobuild.triton import model_config

CONFIG_FILE = "config.pbtxt"
LARGEST_CONFIG = 1 << 20
LARGEST_VERSION = (1 << 63) - 1
NOT_VERSIONS = ("warmup", "initial_state", "configs")
"""Folders that Triton skips when it looks for versions (``VersionsToLoad``)."""


@dataclass(frozen=True, slots=True)
class Effective:
    """What Triton makes of ``backend``, ``platform`` and ``default_model_filename``.

    Attributes:
        backend: Name of the backend, ``"ensemble"`` for ensembles, empty when nothing tells.
        platform: The platform it reports.
        filename: Model file in a version folder; empty where the backend decides.
    """

    backend: str
    platform: str
    filename: str


@dataclass(frozen=True, slots=True)
class View:
    """One configuration of a model.

    Attributes:
        file: Its path below the repository; the model's folder when there is no file.
        config: ModelConfig message.
        positions: Where its fields stand.
        written: Whether there is a file.
        effective: Backend, platform and model file after Triton's completion.
    """

    file: str
    config: Any
    positions: Positions
    written: bool
    effective: Effective

    def where(self, *path: str | int) -> tuple[str, int | None, int | None]:
        """File, line and column of a field or its nearest ancestor, for :meth:`Findings.add`."""
        place = self.positions.place(*path) if path else None
        if place is None:
            return self.file, 1 if self.written else None, None
        return self.file, place.line, place.column


@dataclass(slots=True)
class Model:
    """A model's folder.

    Attributes:
        name: Its name.
        folder: The folder.
        tree: The repository's files.
        children: What lies in the folder.
        versions: Version folders by number.
        views: Its configurations; config.pbtxt, or the empty one, is the first.
        broken: Whether config.pbtxt cannot be read, so that little else can be said.
    """

    name: str
    folder: Entry
    tree: Tree
    children: list[Entry]
    versions: dict[int, Entry] = field(default_factory=dict)
    views: list[View] = field(default_factory=list)
    broken: bool = False

    @property
    def main(self) -> View | None:
        """The configuration that Triton uses by default."""
        return self.views[0] if self.views and not self.broken else None

    def at(self, *parts: str) -> Entry | None:
        """The entry below the model's folder."""
        return self.tree.entry(*self.folder.relative.split("/"), *parts)


def enum_name(message: Any, name: str) -> str:
    """The name of the enum value in a field, or its number as text."""
    value = message.DESCRIPTOR.fields_by_name[name].enum_type.values_by_number.get(getattr(message, name))
    return str(value.name) if value is not None else str(getattr(message, name))


def read_model(tree: Tree, folder: Entry, findings: Findings) -> Model:
    """Look at a model's folder and read its configurations."""
    model = Model(folder.name, folder, tree, tree.children(folder))
    for child in model.children:
        number = version_number(child.name)
        if child.is_folder and number is not None:
            model.versions[number] = child
    main = next((c for c in model.children if c.name == CONFIG_FILE), None)
    configs = next((c for c in model.children if c.name == "configs" and c.is_folder), None)
    variants = [c for c in (tree.children(configs) if configs else ()) if c.name.endswith(".pbtxt")]
    if main is None and not variants:
        model.views.append(_view(model, folder.relative, model_config(), Positions(), written=False))
    elif main is not None:
        view = read_view(model, main, findings)
        model.broken = view is None
        if view is not None:
            model.views.append(view)
    for variant in variants:
        view = read_view(model, variant, findings)
        if view is not None:
            model.views.append(view)
    return model


def version_number(name: str) -> int | None:
    """The version that a folder's name stands for; ``None`` if Triton ignores it."""
    if not (name.isascii() and name.isdigit()) or (len(name) > 1 and name[0] == "0") or len(name) > 19:
        return None
    return int(name) if int(name) <= LARGEST_VERSION else None


def read_view(model: Model, entry: Entry, findings: Findings) -> View | None:
    """Read one configuration; what is wrong with it as a text becomes a finding."""
    if not entry.is_file:
        findings.add("config-not-file", f"{entry.name} is {_kind(entry)}", entry.relative)
        return None
    if entry.size > LARGEST_CONFIG:
        findings.add("config-too-large", f"{entry.name} has {entry.size} bytes", entry.relative)
        return None
    data = read_whole(entry, LARGEST_CONFIG)
    if data is None:
        findings.add("not-checked", f"{entry.name} cannot be read", entry.relative)
        return None
    read = read_text(data, entry, findings)
    if read is None:
        return None
    message, positions = read
    return _view(model, entry.relative, message, positions, written=True)


def _view(model: Model, file: str, config: Any, positions: Positions, *, written: bool) -> View:
    return View(file, config, positions, written, effective(config, model))


def _kind(entry: Entry) -> str:
    return {
        "folder": "a folder",
        "broken": "a link that leads nowhere",
        "outside": "a link out of the repository, which is not followed",
        "special": "a pipe, socket or device",
    }.get(entry.kind, "not readable")


_BY_FILE = (
    # In the order in which Triton looks.
    ("model.savedmodel", "tensorflow", "tensorflow_savedmodel"),
    ("model.graphdef", "tensorflow", "tensorflow_graphdef"),
    ("model.plan", "tensorrt", "tensorrt_plan"),
    ("model.onnx", "onnxruntime", "onnxruntime_onnx"),
    ("model.xml", "openvino", ""),
    ("model.pt", "pytorch", "pytorch_libtorch"),
    ("model.pt2", "pytorch", "torch_aoti"),
    ("model.py", "python", ""),
)
PLATFORMS = {
    "tensorflow_savedmodel": "tensorflow",
    "tensorflow_graphdef": "tensorflow",
    "tensorrt_plan": "tensorrt",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "libtorch": "pytorch",
    "torch_aoti": "pytorch",
    "ensemble": "ensemble",
}
"""Platforms that Triton knows, with their backends."""
DEFAULT_FILES = {
    "tensorrt": "model.plan",
    "onnxruntime": "model.onnx",
    "openvino": "model.xml",
    "pytorch": "model.pt",
    "python": "model.py",
}


def effective(config: Any, model: Model) -> Effective:
    """Fill in backend, platform and model file as Triton's ``AutoCompleteBackendFields`` does."""
    backend, platform, filename = config.backend, config.platform, config.default_model_filename
    if platform == "ensemble":
        return Effective("ensemble", platform, "")
    if not backend and platform:
        backend = PLATFORMS.get(platform, "")
    elif not backend:
        for name, kind, its_platform in _BY_FILE:
            if filename == name or (not filename and name in _first_version(model)):
                backend, platform = kind, its_platform
                break
        else:
            suffix = model.name.partition(".")[2]
            if not filename and suffix:
                return Effective(suffix, "", f"model.{suffix}")
    if not filename:
        filename = "model.pt2" if platform == "torch_aoti" else DEFAULT_FILES.get(backend, "")
        if backend == "tensorflow":
            filename = "model.graphdef" if platform == "tensorflow_graphdef" else "model.savedmodel"
    if not platform and backend in ("tensorrt", "onnxruntime", "pytorch"):
        platform = {"tensorrt": "tensorrt_plan", "onnxruntime": "onnxruntime_onnx"}.get(
            backend, "pytorch_libtorch"
        )
    return Effective(backend, platform, filename)


def _first_version(model: Model) -> set[str]:
    """Names in the first folder by name, which is where Triton looks."""
    folders = sorted((c for c in model.children if c.is_folder), key=lambda c: c.name)
    return {e.name for e in model.tree.children(folders[0])} if folders else set()


def served_versions(model: Model, config: Any) -> list[int]:
    """The versions that Triton loads under the configuration's policy, highest first."""
    return selected_versions(model.versions, config)


def selected_versions(numbers: Iterable[int], config: Any) -> list[int]:
    """The versions that a policy takes of some numbers, highest first."""
    present = sorted(numbers, reverse=True)
    policy = config.version_policy
    kind = policy.WhichOneof("policy_choice")
    if kind == "specific":
        return [v for v in present if v in set(policy.specific.versions)]
    if kind == "all":
        return present
    return present[: policy.latest.num_versions if kind == "latest" else 1]


def text_list(names: Iterable[str], most: int = 8) -> str:
    """Names as ``a, b, c``, cut off when there are many."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return (", ".join(listed[:most]) or "none") + more
