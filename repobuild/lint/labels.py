"""Label files of outputs (Triton's label_provider.cc: one label a line)."""

from __future__ import annotations

import math

from repobuild.lint.files import read_whole
from repobuild.lint.finding import Findings
from repobuild.lint.model import Model, View

LARGEST_FILE = 16 << 20


def _normal(parts: list[str]) -> list[str] | None:
    """A path without ``.`` and ``..``; ``None`` if it leaves the repository."""
    found: list[str] = []
    for part in parts:
        if part == ".." and not found:
            return None
        if part == "..":
            found.pop()
        elif part not in ("", "."):
            found.append(part)
    return found


def check_labels(model: Model, view: View, findings: Findings) -> None:
    """Check the label file of every output that names one."""
    for index, item in enumerate(view.config.output):
        name = item.label_filename
        if not name:
            continue
        place = view.where("output", index, "label_filename")
        parts = _normal([*model.folder.relative.split("/"), *name.split("/")])
        if parts is None:
            findings.add("not-checked", f"label file '{name}' lies outside of the repository", *place)
            continue
        found = model.tree.entry(*parts)
        if found is None or not found.is_file:
            findings.add("label-file-missing", f"label file '{name}' is not in the model's folder", *place)
            continue
        data = read_whole(found, LARGEST_FILE)
        if data is None:
            findings.add(
                "not-checked", f"{found.name} is larger than lint reads, or unreadable", found.relative
            )
            continue
        labels = data.split(b"\n")
        if labels[-1] == b"":
            labels.pop()
        ends = [number for number, label in enumerate(labels, 1) if label.endswith(b"\r")]
        if ends:
            findings.add(
                "label-line-end",
                f"{len(ends)} labels end in a carriage return, which Triton serves with them",
                found.relative,
                ends[0],
            )
        for number, label in enumerate(labels, 1):
            if not label.strip():
                findings.add("label-line-empty", f"line {number} is an empty label", found.relative, number)
        if item.dims and all(d > 0 for d in item.dims) and len(labels) != math.prod(item.dims):
            findings.add(
                "label-count",
                f"'{name}' has {len(labels)} lines, output '{item.name}' has {math.prod(item.dims)} elements",
                *place,
            )
