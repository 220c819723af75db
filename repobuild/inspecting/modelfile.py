"""Model files: kind, size, digest, and what loading them would import, with nothing loaded."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from repobuild.artifact import file_digest
from repobuild.errors import from_oserror
from repobuild.inspecting.interface import Inspection
from repobuild.inspecting.kinds import kind_of
from repobuild.inspecting.onnxfile import inspect_onnx
from repobuild.sources.containers import compression_of, open_stream, read_head, refuse_strangers
from repobuild.sources.pickle_scan import scan_pickle

MAX_HEADER = 1 << 24

ENGINE = (
    "an engine loads only on the TensorRT version and, unless it was built to be portable, the kind of GPU"
    " that it was built for; which they are, its tensors and its profiles only TensorRT itself can read"
)
UNREAD: Mapping[str, str] = {
    "tensorrt-engine": ENGINE,
    "hdf5": "what an HDF5 file holds is not read here; Keras 2 and PyTables write such files",
    "catboost": "the tables of a CatBoost model are not read here",
    "gguf": "GGUF holds a language model, which repobuild does not convert",
    "keras": "a Keras 3 archive is not read here; export it to ONNX first",
    "lightgbm": "the trees of a LightGBM model are not read here",
    "xgboost-json": "the trees of an XGBoost model are not read here",
    "xgboost-ubj": "the trees of an XGBoost model are not read here",
    "torchscript": "TorchScript holds code of its own, which runs when the model is asked",
}


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
        kind = kind_of(path, head)
        if kind is None and path.suffix.lower() in (".onnx", ".ort"):
            return inspect_onnx(path, common)
        reader = READERS.get(kind or "")
        if reader is not None:
            facts, remarks = reader(path)
            return Inspection(str(path), str(kind), {**common, **facts}, remarks)
        if kind is not None:
            return Inspection(str(path), kind, common, _unread(kind))
        return _pickle(path, head, common)
    except OSError as problem:
        raise from_oserror(problem, "reading the model file") from problem


def _pickle(path: Path, head: bytes, common: dict[str, Any]) -> Inspection:
    facts = {**common, "compression": compression_of(head) or "none"}
    with path.open("rb") as stream:
        scan = scan_pickle(open_stream(stream))
    if scan.malformed and not scan.imports:
        kind = path.suffix.lstrip(".").lower() or "unknown"
        return Inspection(str(path), "unknown", facts, (f"its bytes are those of no known format ({kind})",))
    return Inspection(str(path), scan.flavour, {**facts, **scanned(scan)}, scan_remarks(scan))


def scanned(scan: Any) -> dict[str, Any]:
    """What a scan of a pickle found, JSON-ready."""
    return {
        "imports": list(scan.imports),
        "calls": list(scan.calls),
        "versions": {name: list(found) for name, found in scan.versions.items()},
        "carries_code": list(scan.code),
    }


def scan_remarks(scan: Any) -> tuple[str, ...]:
    """What a reader of a scan should know."""
    told = ["loading a pickle imports and calls what it names; that needs --trust pickle or a pin"]
    if not scan.complete:
        told.append(f"the scan could not follow the file to its end: {scan.trouble}")
    return tuple(told)


def _torch(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A zip of torch.save: its pickle is scanned as any other."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        inner = next(n for n in names if n.endswith("data.pkl"))
        with archive.open(inner) as stream:
            scan = scan_pickle(_plain(stream))
    facts = {"members": len(names), **scanned(scan)}
    return facts, scan_remarks(scan)


def _plain(stream: Any) -> Any:
    from repobuild.sources.containers import MAX_DECOMPRESSED_BYTES, CountingStream

    return CountingStream(stream, MAX_DECOMPRESSED_BYTES)


def _skops(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    with zipfile.ZipFile(path) as archive:
        if archive.getinfo("schema.json").file_size > MAX_HEADER:
            return {}, (f"schema.json is larger than {MAX_HEADER >> 20} MiB and is not read",)
        schema = json.loads(archive.read("schema.json"))
        members = len(archive.namelist())
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
    told = {"protocol": schema.get("protocol"), "skops_version": schema.get("_skops_version")}
    facts = {"members": members, **{k: v for k, v in told.items() if v is not None}, "types": sorted(types)}
    return facts, ("a skops file loads only types that are known to be harmless, or vouched for",)


def _safetensors(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(size)) if size <= MAX_HEADER else {}
    tensors = {
        name: {"dtype": t.get("dtype"), "shape": t.get("shape")}
        for name, t in header.items()
        if name != "__metadata__" and isinstance(t, dict)
    }
    return {"tensors": tensors, "metadata": header.get("__metadata__", {})}, (
        "weights alone; the module that they belong to is code of its own",
    )


def _zip(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    return {"members": names[:40], "member_count": len(names)}, ()


def _lenient(
    reader: Callable[[Path], tuple[dict[str, Any], tuple[str, ...]]],
) -> Callable[[Path], tuple[dict[str, Any], tuple[str, ...]]]:
    """A damaged inside is a remark, since kind, size and digest are known all the same."""

    def read(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
        try:
            return reader(path)
        except (zipfile.BadZipFile, ValueError, KeyError, AttributeError, StopIteration, EOFError) as problem:
            return {}, (f"the inside is damaged: {type(problem).__name__}: {problem}",)
        except (NotImplementedError, RuntimeError, RecursionError) as problem:
            return {}, (f"the inside cannot be read: {type(problem).__name__}: {problem}",)

    return read


READERS: Mapping[str, Callable[[Path], tuple[dict[str, Any], tuple[str, ...]]]] = {
    "torch": _lenient(_torch),
    "skops": _lenient(_skops),
    "safetensors": _lenient(_safetensors),
    "zip": _lenient(_zip),
    "npz": _lenient(_zip),
    "pt2": _lenient(_zip),
}


def _unread(kind: str) -> tuple[str, ...]:
    return (UNREAD[kind],) if kind in UNREAD else ()
