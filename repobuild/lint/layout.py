"""Names, links and stray things in a repository, whatever the models are."""

from __future__ import annotations

import re

from repobuild.lint.files import MOST_ENTRIES, Entry, Tree
from repobuild.lint.finding import Findings
from repobuild.lint.model import CONFIG_FILE, version_number

_SAFE = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]*")
_OWN_CHECK = (".onnx", ".plan", ".pt", ".pt2")
"""Endings whose empty files have a rule of their own."""


def check_layout(tree: Tree, start: Entry | None, findings: Findings) -> None:
    """Check every name below a folder; links are named and not followed.

    Args:
        tree: The repository.
        start: A model's folder, or ``None`` for the whole repository.
        findings: Where findings go.
    """
    by_folder: dict[str, dict[str, str]] = {}
    for entry in tree.walk(start):
        if any(part.startswith(".") for part in entry.relative.split("/")[:-1]):
            continue
        _check_name(entry, findings)
        folder = entry.relative.rpartition("/")[0]
        other = by_folder.setdefault(folder, {}).setdefault(entry.name.casefold(), entry.name)
        if other != entry.name:
            findings.add(
                "name-case-clash", f"'{other}' and '{entry.name}' differ by case only", entry.relative
            )
        _check_kind(entry, findings)
    if tree.looked_at > MOST_ENTRIES:
        findings.add("not-checked", f"there are more than {MOST_ENTRIES} files", ".")


def is_model(tree: Tree, folder: Entry) -> bool:
    """Whether a folder looks like a model: it has a configuration, configs, or a version folder."""
    return not folder.name.startswith(".") and any(
        c.name in (CONFIG_FILE, "configs") or (c.is_folder and version_number(c.name) is not None)
        for c in tree.children(folder)
    )


def nested_models(tree: Tree, folder: Entry) -> list[str]:
    """Names of models inside a folder that is no model itself."""
    if is_model(tree, folder) or folder.name.startswith("."):
        return []
    return [c.name for c in tree.children(folder) if c.is_folder and is_model(tree, c)]


def _check_name(entry: Entry, findings: Findings) -> None:
    if entry.name == "__pycache__":
        return
    if entry.name.startswith(".") and "/" not in entry.relative and entry.is_folder:
        findings.add("dot-folder", f"Triton takes folder '{entry.name}' for a model", entry.relative)
    elif entry.name.startswith("."):
        findings.add("dot-file", f"'{entry.name}' begins with a dot", entry.relative)
    elif not _SAFE.fullmatch(entry.name):
        findings.add("name-unsafe", f"'{entry.name}' is a name that not every tool bears", entry.relative)


def _check_kind(entry: Entry, findings: Findings) -> None:
    if entry.kind == "broken":
        findings.add("link-broken", f"the link '{entry.name}' leads nowhere", entry.relative)
    elif entry.kind == "outside":
        findings.add("link-outside", f"the link '{entry.name}' leads out of the repository", entry.relative)
    elif entry.kind == "special":
        findings.add("special-file", f"'{entry.name}' is a pipe, socket or device", entry.relative)
    elif entry.kind == "hidden":
        findings.add("not-checked", f"'{entry.name}' cannot be looked at", entry.relative)
    elif entry.is_file and entry.size == 0 and not entry.name.endswith((*_OWN_CHECK, "__init__.py")):
        findings.add("file-empty", f"'{entry.name}' has no bytes", entry.relative)
