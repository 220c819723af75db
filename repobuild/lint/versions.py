"""Version folders, the version policy, and the model file in each version."""

from __future__ import annotations

import re

from repobuild.lint.files import Entry, read_start
from repobuild.lint.finding import Findings
from repobuild.lint.model import (
    CONFIG_FILE,
    LARGEST_VERSION,
    NOT_VERSIONS,
    Model,
    View,
    selected_versions,
    served_versions,
    text_list,
)

_ENDINGS = {
    "onnxruntime": (".onnx",),
    "tensorrt": (".plan", ".engine", ".trt"),
    "pytorch": (".pt", ".pth", ".pt2", ".torchscript"),
    "python": (".py",),
    "openvino": (".xml",),
}
"""File endings by which a misnamed model file is known."""
_NUMBER_PREFIX = re.compile(r"(?!0.)\s*[+-]?0*([0-9]+)", re.DOTALL)
"""What ``std::stoll`` reads of a folder's name; Triton skips names with a leading zero before that."""
_WITH_CAPABILITIES = ("onnxruntime", "tensorrt", "pytorch", "tensorflow")
"""Backends that take the model file by compute capability (backend's ``BackendModelInstance``)."""
_WITHOUT_CAPABILITIES = ("python", "ensemble", "openvino")
_CAPABILITY = re.compile(r"[1-9][0-9]?\.[0-9]")


def check_folders(model: Model, findings: Findings) -> None:
    """Check the names of the folders beside the versions; these rules hold for every configuration."""
    # Packages beside a python model are its own affair; a folder with the model's file is a lost version.
    wanted = {v.effective.filename for v in model.views if v.effective.backend != "python"} - {""}
    loose = [c for c in model.children if c.is_folder and c.name not in NOT_VERSIONS]
    for child in loose:
        if child in model.versions.values() or child.name.startswith("."):
            continue
        if _beyond(child.name):
            findings.add(
                "version-number-large",
                f"Triton dies of folder '{child.name}', a number beyond {LARGEST_VERSION}",
                child.relative,
            )
        elif re.fullmatch(r"0[0-9]+", child.name):
            findings.add("version-leading-zero", f"version folder '{child.name}' is ignored", child.relative)
        elif not _NUMBER_PREFIX.match(child.name) and any(
            e.name in wanted for e in model.tree.children(child)
        ):
            findings.add("version-not-number", f"folder '{child.name}' is ignored", child.relative)


def _beyond(name: str) -> bool:
    """Whether a folder's name begins with a number that 64 bits do not hold."""
    found = _NUMBER_PREFIX.match(name)
    return found is not None and (
        len(found[1]) > 19 or not -LARGEST_VERSION - 1 <= int(found[0]) <= LARGEST_VERSION
    )


def check_stray_configs(model: Model, findings: Findings) -> None:
    """A configuration in a version folder is not read: there is one for all versions."""
    for folder in model.versions.values():
        found = model.at(folder.name, CONFIG_FILE)
        if found is not None:
            findings.add("config-misplaced", "a config.pbtxt in a version folder is not read", found.relative)


def check_versions(model: Model, view: View, findings: Findings) -> None:
    """Check which versions are served, and that each has its model file."""
    served = served_versions(model, view.config)
    _check_prefixes(model, view, findings)
    policy = view.config.version_policy
    if policy.WhichOneof("policy_choice") == "specific":
        for index, number in enumerate(policy.specific.versions):
            if number not in model.versions:
                findings.add(
                    "version-missing",
                    f"version {number} of version_policy has no folder",
                    *view.where("version_policy", 0, "specific", 0, "versions", index),
                )
    if not served:
        place = view.where("version_policy") if view.positions.has("version_policy") else view.where()
        misplaced = _misplaced(model, view)
        if misplaced is not None:
            findings.add(
                "model-file-misplaced", f"{misplaced.name} lies beside config.pbtxt", misplaced.relative
            )
        else:
            findings.add(
                "version-none",
                f"at least one version must be available under the version policy of model '{model.name}'",
                *place,
                evidence=[f"folders: {text_list(c.name for c in model.children if c.is_folder)}"],
            )
        return
    _check_paths(view, findings)
    for number in sorted(model.versions):
        _check_file(model, view, number, findings, served=number in served)
    if view.effective.backend == "tensorrt" or view.config.cc_model_filenames:
        _check_capabilities(model, view, served, findings)


def _check_prefixes(model: Model, view: View, findings: Findings) -> None:
    """Folders that Triton takes for versions by the number that their names begin with."""
    phantoms: list[tuple[int, Entry]] = []
    for child in model.children:
        found = _NUMBER_PREFIX.match(child.name)
        proper = child in model.versions.values() or re.fullmatch(r"0[0-9]+", child.name)
        if child.is_folder and found and not proper and not _beyond(child.name):
            phantoms.append((int(found[0]), child))
    selected = selected_versions({*model.versions, *(n for n, _ in phantoms)}, view.config)
    for number, folder in phantoms:
        if number in model.versions or number not in selected:
            findings.add("version-not-number", f"folder '{folder.name}' is ignored", folder.relative)
        else:
            findings.add(
                "version-number-prefix",
                f"Triton takes folder '{folder.name}' for version {number}, and finds no folder '{number}'",
                folder.relative,
            )


def model_file(model: Model, view: View, version: int) -> Entry | None:
    """The default model file of a version; for a folder ``model.onnx``, the file in it."""
    folder = model.versions.get(version)
    name = view.effective.filename
    if folder is None or not name:
        return None
    found = model.at(folder.name, *name.split("/"))
    if found is not None and found.is_folder and view.effective.backend == "onnxruntime":
        return model.at(folder.name, *name.split("/"), "model.onnx")
    return found


def sound_file(entry: Entry, findings: Findings) -> bool:
    """Whether a model file has content of its own, as far as its first bytes tell."""
    if entry.kind in ("broken", "outside", "special", "hidden"):
        return False
    if entry.is_file and entry.size == 0:
        findings.add("model-file-empty", f"{entry.name} has no bytes", entry.relative)
        return False
    start = read_start(entry, 512) if entry.is_file else b""
    if start is None:
        findings.add("not-checked", f"{entry.name} cannot be read", entry.relative)
        return False
    if start.startswith(b"version https://git-lfs.github.com/spec/"):
        findings.add("file-lfs-pointer", f"{entry.name} is a Git LFS pointer", entry.relative)
        return False
    if start.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        findings.add("file-is-web-page", f"{entry.name} is a web page", entry.relative)
        return False
    return True


def _check_paths(view: View, findings: Findings) -> None:
    named = [(view.config.default_model_filename, view.where("default_model_filename"))]
    named += [
        (name, view.where(*view.positions.entry(key, "cc_model_filenames"), "value"))
        for key, name in sorted(view.config.cc_model_filenames.items())
    ]
    for name, place in named:
        if name.startswith("/") or ".." in name.split("/"):
            findings.add("model-file-path", f"'{name}' leads out of the version folder", *place)


def _check_file(model: Model, view: View, number: int, findings: Findings, *, served: bool) -> None:
    backend, name = view.effective.backend, view.effective.filename
    if backend not in _ENDINGS or not name or ".." in name.split("/") or name.startswith("/"):
        return
    folder = model.versions[number]
    found = model_file(model, view, number)
    if found is not None and found.kind != "broken":
        if found.is_file or found.kind == "outside":
            if served:
                sound_file(found, findings)
        elif not found.is_folder:
            findings.add("not-checked", f"{found.name} is no regular file", found.relative)
        elif backend != "openvino":
            findings.add("model-file-missing", f"{found.name} is a folder", found.relative)
        return
    if backend == "tensorrt" and view.config.cc_model_filenames:
        return
    contents = [e for e in model.tree.children(folder) if not e.name.startswith(".")]
    if not served:
        findings.add(
            "version-empty", f"version {number} is not served now and has no {name}", folder.relative
        )
        return
    place: tuple[str, int | None, int | None] = (folder.relative, None, None)
    if view.config.default_model_filename:
        place = view.where("default_model_filename")
    others = [e for e in contents if e.is_file and e.name.endswith(_ENDINGS[backend])]
    if others:
        findings.add(
            "model-file-misnamed",
            f"version {number} has no {name}, and has {text_list(e.name for e in others)}",
            *place,
        )
    else:
        misplaced = _misplaced(model, view)
        if misplaced is not None:
            findings.add(
                "model-file-misplaced", f"{misplaced.name} lies beside config.pbtxt", misplaced.relative
            )
            return
        findings.add(
            "model-file-missing",
            f"version {number} has no {name}",
            *place,
            evidence=[f"it holds {text_list(e.name for e in contents)}"],
        )


def _check_capabilities(model: Model, view: View, served: list[int], findings: Findings) -> None:
    config = view.config
    names = sorted(config.cc_model_filenames.items())
    if not names:
        return
    on_cpu = config.instance_group and all(g.kind == type(g).KIND_CPU for g in config.instance_group)
    if on_cpu or view.effective.backend in _WITHOUT_CAPABILITIES:
        findings.add(
            "cc-without-gpu", "cc_model_filenames has no effect here", *view.where("cc_model_filenames")
        )
        return
    if view.effective.backend not in _WITH_CAPABILITIES:
        return
    for key, name in names:
        entry = view.positions.entry(key, "cc_model_filenames")
        if not _CAPABILITY.fullmatch(key):
            findings.add("cc-key-invalid", f"'{key}' is no compute capability", *view.where(*entry, "key"))
        for number in served:
            found = model.at(model.versions[number].name, *name.split("/"))
            if ".." in name.split("/") or name.startswith("/"):
                continue
            if found is None:
                findings.add(
                    "cc-file-missing", f"version {number} has no '{name}'", *view.where(*entry, "value")
                )
            elif found.is_file:
                sound_file(found, findings)
    keyed = {name for _, name in names}
    for number in served:
        default = model_file(model, view, number)
        if default is not None and default.name not in keyed and view.effective.backend == "tensorrt":
            findings.add(
                "cc-fallback",
                f"a GPU other than {text_list(k for k, _ in names)} takes {default.name} in silence",
                *view.where("cc_model_filenames"),
                evidence=[default.relative],
            )


def _misplaced(model: Model, view: View) -> Entry | None:
    """A model file directly in the model's folder."""
    backend = view.effective.backend
    endings = _ENDINGS.get(backend, ()) if backend else _all_endings()
    wanted = view.effective.filename
    files = [child for child in model.children if child.is_file]
    if backend == "python":
        # Helper modules may lie there, since the folder is on the model's path.
        endings = ()
    return next(
        (f for f in files if f.name == wanted),
        next((f for f in files if endings and f.name.endswith(endings)), None),
    )


def _all_endings() -> tuple[str, ...]:
    return tuple(ending for endings in _ENDINGS.values() for ending in endings)
