"""TorchScript files and the names in their configuration."""

from __future__ import annotations

import os
import zipfile
from typing import Any, BinaryIO

from repobuild.lint.files import Entry, open_file, read_start
from repobuild.lint.finding import Findings
from repobuild.lint.model import View, text_list
from repobuild.torch_names import position

LARGEST_DIRECTORY = 64 << 20
"""Bytes of a zip archive's directory, which is read whole."""


def check_torch_file(entry: Entry, findings: Findings) -> None:
    """Check that a .pt file is a TorchScript archive; nothing in it is unpacked or loaded."""
    start = read_start(entry, 4)
    if start is None:
        findings.add("not-checked", f"{entry.name} cannot be read", entry.relative)
        return
    try:
        with open_file(entry) as file:
            if _directory_size(file) > LARGEST_DIRECTORY:
                findings.add("not-checked", f"{entry.name} has too many members", entry.relative)
                return
        with open_file(entry) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, zipfile.LargeZipFile, ValueError, NotImplementedError, EOFError) as problem:
        begun = start.startswith(b"PK\x03\x04")
        said = "is a zip archive that ends early" if begun else "is no zip archive"
        findings.add(
            "torch-not-archive",
            f"{entry.name} {said}",
            entry.relative,
            evidence=[str(problem)] if begun else [],
        )
        return
    except OSError as problem:
        findings.add("not-checked", f"{entry.name} cannot be read: {problem.strerror}", entry.relative)
        return
    if entry.name.endswith(".pt2"):
        return
    inner = {n.partition("/")[2] for n in names}
    if "constants.pkl" not in inner and not any(n.startswith("code/") for n in inner):
        findings.add(
            "torch-not-script",
            f"{entry.name} holds no code",
            entry.relative,
            evidence=[f"it has {text_list(sorted(inner))}"],
        )


def _directory_size(file: BinaryIO) -> int:
    """Size of a zip archive's directory by its end record (PKWARE's APPNOTE, 4.3.16); 0 without one."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 65_557))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    return int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0


def check_torch_names(view: View, findings: Findings) -> None:
    """Check ``<name>__<index>`` names, by which TorchScript tensors are found."""
    config = view.config
    if view.effective.platform == "torch_aoti":
        return
    if not config.input or not config.output:
        what = "inputs" if not config.input else "outputs"
        findings.add("torch-outputs-missing", f"the configuration has no {what}", *view.where())
    for kind, items in (("input", config.input), ("output", config.output)):
        _check_kind(view, kind, items, findings)


def _check_kind(view: View, kind: str, items: Any, findings: Findings) -> None:
    numbers = [(position(i.name), n) for n, i in enumerate(items) if i.name]
    indexed = [(number, n) for number, n in numbers if number is not None]
    if not indexed:
        return
    if len(indexed) < len(numbers):
        plain = next(n for number, n in numbers if number is None)
        findings.add(
            "torch-names-mixed",
            f"{kind} '{items[plain].name}' has no index, and others have one",
            *view.where(kind, plain, "name"),
        )
        return
    seen: set[int] = set()
    for number, at in indexed:
        extra = view.config.sequence_batching.control_input
        if number in seen or number >= len(items) + len(extra) + len(view.config.batch_input):
            findings.add(
                "torch-index",
                f"{kind} '{items[at].name}' has the index {number} and there are {len(items)} {kind}s",
                *view.where(kind, at, "name"),
            )
        seen.add(number)
