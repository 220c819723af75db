"""Model files: kind, size, digest, and what loading them would import, with nothing loaded."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from repobuild.artifact import file_digest
from repobuild.errors import from_oserror
from repobuild.inspecting.interface import Inspection
from repobuild.inspecting.onnxfile import inspect_onnx
from repobuild.sources.archive_scan import scan_archive
from repobuild.sources.containers import compression_of, open_stream, read_head, refuse_strangers
from repobuild.sources.content import KINDS, content_of
from repobuild.sources.pickle_scan import PickleScan, scan_pickle
from repobuild.sources.skops_file import SCHEMA
from repobuild.sources.zips import MAGIC, Zip, ZipUnreadable

MAX_HEADER = 1 << 24
SHOWN_MEMBERS = 40
ENGINE_MAGIC = (b"ftrt", b"ptrt")
"""First bytes of engines that TensorRT serialises; Netron knows them by these too."""

ENGINE = (
    "an engine loads only on the TensorRT version and, unless it was built to be portable, the kind of GPU"
    " that it was built for; which they are, its tensors and its profiles only TensorRT itself can read"
)
PICKLE = "loading a pickle imports and calls what it names; that needs --trust pickle or a pin"
REMARKS: Mapping[str, str] = {
    "tensorrt-engine": ENGINE,
    "torchscript": "TorchScript carries code of its own, which runs when the model is asked",
    "safetensors": "weights alone; the module that they belong to is code of its own",
    "skops": "types that skops does not know load only when they are vouched for",
}
"""What a reader of a kind should know."""

Read = tuple[dict[str, Any], tuple[str, ...]]


def inspect_model(path: Path) -> Inspection:
    """Tell what a model file is.

    Args:
        path: The file.

    Raises:
        InputInvalid: It is missing, empty, no regular file, or plainly something else than a model.
        EnvironmentLacking: It cannot be read.
    """
    head = read_head(path, str(path))
    refuse_strangers(head, str(path))
    try:
        common: dict[str, Any] = {"bytes": path.stat().st_size, "sha256": file_digest(path)}
        kind, trouble = _kind(path, head)
        if kind == "onnx":
            return inspect_onnx(path, common)
        if kind in ("pickle", "unknown"):
            return _pickle(path, head, common, trouble)
        facts, remarks = READERS.get(kind, _nothing)(path)
    except OSError as problem:
        raise from_oserror(problem, "reading the model file") from problem
    told = REMARKS.get(kind) or ("" if facts else f"{KINDS[kind]}; no more of it is read here")
    return Inspection(str(path), kind, {**common, **facts}, tuple(t for t in (told, trouble, *remarks) if t))


def _kind(path: Path, head: bytes) -> tuple[str, str]:
    if head.startswith(ENGINE_MAGIC):
        return "tensorrt-engine", ""
    content = content_of(path)
    if content.kind == "unknown" and path.suffix.lower() == ".onnx":
        return "onnx", ""
    return content.kind, content.trouble


def _pickle(path: Path, head: bytes, common: dict[str, Any], trouble: str) -> Inspection:
    """A pickle, or a file that is nothing else: pickles of protocols 0 and 1 have no first bytes."""
    facts = {**common, "compression": compression_of(head) or "none"}
    with path.open("rb") as stream:
        scan = scan_pickle(open_stream(stream))
    if scan.malformed and not scan.imports:
        told = (trouble, "its bytes are those of no kind that is known here")
        return Inspection(str(path), "unknown", facts, tuple(t for t in told if t))
    return Inspection(str(path), scan.flavour, {**facts, **_scanned(scan)}, (PICKLE, *_lost(scan)))


def _scanned(scan: PickleScan) -> dict[str, Any]:
    return {
        "imports": list(scan.imports),
        "calls": list(scan.calls),
        "made_with": {name: list(found) for name, found in scan.versions.items()},
        "carries_code": list(scan.code),
    }


def _lost(scan: PickleScan) -> tuple[str, ...]:
    return () if scan.complete else (f"the scan could not follow it to its end: {scan.trouble}",)


def _nothing(_: Path) -> Read:
    return {}, ()


def _archive(path: Path) -> Read:
    """An archive: its members, and every pickle in it."""
    scan = scan_archive(path)
    pickles = {name or "the file": _scanned(found) for name, found in scan.pickles.items()}
    lost = tuple(f"{name}: {line}" for name, found in scan.pickles.items() for line in _lost(found))
    facts: dict[str, Any] = {"pickles": pickles}
    with path.open("rb") as stream:
        zipped = stream.read(len(MAGIC)) == MAGIC
    members, remarks = _members(path) if zipped else ({}, ())
    facts.update(members)
    return facts, (*remarks, *scan.troubles, *lost)


def _members(path: Path) -> Read:
    try:
        with path.open("rb") as stream, Zip(stream) as archive:
            sizes = {m.name: m.size for m in archive.members[:SHOWN_MEMBERS]}
            return {"members": len(archive.members), "member_bytes": sizes}, tuple(archive.troubles)
    except ZipUnreadable as problem:
        return {}, (str(problem),)


def _skops(path: Path) -> Read:
    """The names of all types in the schema, whether skops knows them or not."""
    facts, remarks = _members(path)
    try:
        with path.open("rb") as stream, Zip(stream) as archive:
            schema = json.loads(archive.head(SCHEMA, MAX_HEADER))
    except (ZipUnreadable, ValueError, RecursionError) as problem:
        return facts, (*remarks, f"{SCHEMA} cannot be read: {problem}")
    types: set[str] = set()
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            module, name = node.get("__module__"), node.get("__class__")
            if isinstance(module, str) and isinstance(name, str):
                types.add(f"{module}.{name}")
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    made = schema.get("_skops_version") if isinstance(schema, dict) else None
    return {**facts, "made_with": {"skops": [made]} if made else {}, "types": sorted(types)}, remarks


def _safetensors(path: Path) -> Read:
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        if size > MAX_HEADER:
            return {}, (f"its header of {size} bytes is larger than {MAX_HEADER >> 20} MiB and is not read",)
        text = stream.read(size)
    try:
        header = json.loads(text)
        tensors = {
            name: {"dtype": t["dtype"], "shape": t["shape"]}
            for name, t in header.items()
            if name != "__metadata__"
        }
        return {"tensors": tensors, "metadata": header.get("__metadata__", {})}, ()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        return {}, (f"its header is damaged: {type(problem).__name__}: {problem}",)


def _lenient(reader: Callable[[Path], Read]) -> Callable[[Path], Read]:
    """A damaged inside is a remark, since kind, size and digest are known all the same."""

    def read(path: Path) -> Read:
        try:
            return reader(path)
        except (EOFError, zlib.error, NotImplementedError) as problem:
            return {}, (f"the inside cannot be read: {type(problem).__name__}: {problem}",)

    return read


READERS: Mapping[str, Callable[[Path], Read]] = {
    **{
        kind: _lenient(_archive)
        for kind in ("torch", "torchscript", "pt2", "torch-archive", "npz", "npy", "zip", "keras")
    },
    "skops": _lenient(_skops),
    "safetensors": _safetensors,
}
