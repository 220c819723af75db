"""The steps that may make a graph smaller, each a file in and a file out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from repobuild.errors import ConversionFailed, evidence
from repobuild.transforms.files import SMALL, GraphFile, opened, size_of
from repobuild.transforms.session import open_graph, session_options
from repobuild.transforms.tools import overheard
from repobuild.transforms.writing import Writer, serialized

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

LARGEST_FOR_ONNXSLIM = 1_500_000_000
"""Bytes of the largest model that onnxslim is asked for: it copies it several times, as one message."""
_DATA = "optimised.data"


class Skipped(Exception):
    """A step that cannot be tried on this graph, or here; the message says why."""


def fold(model: Path, folder: Path) -> Path:
    """ONNX Runtime's offline optimiser, basic level: constant folding, redundant nodes, fusions within ONNX.

    (https://onnxruntime.ai/docs/performance/model-optimizations/graph-optimizations.html)
    """
    return _by_runtime(model, folder, "ORT_ENABLE_BASIC")


def extend(model: Path, folder: Path) -> Path:
    """ONNX Runtime's offline optimiser at its extended level, which fuses into operators of its own."""
    return _by_runtime(model, folder, "ORT_ENABLE_EXTENDED")


def slim(model: Path, folder: Path) -> Path:
    """onnxslim: shape inference, constant folding, dead and doubled nodes, fusions within ONNX.

    Raises:
        Skipped: It is not installed, or the model is too large for it.
    """
    try:
        import onnxslim
    except ImportError as problem:
        raise Skipped(f"onnxslim is not installed ({problem})") from problem
    size = size_of(model).bytes
    if size > LARGEST_FOR_ONNXSLIM:
        raise Skipped(f"the model has {size} bytes, onnxslim is asked for {LARGEST_FOR_ONNXSLIM} at most")
    to = folder / "slim.onnx"
    with overheard():  # what it would say is measured instead
        proto = onnxslim.slim(str(model))
        to.write_bytes(serialized(proto))
    return to


STEPS: Mapping[str, Callable[[Path, Path], Path]] = {
    "constant folding": fold,
    "onnxslim": slim,
    "extended fusion": extend,
}
"""The steps by name, in the order in which they are tried."""


def clean(made: Path, origin: Path, to: Path) -> None:
    """Write what a tool made in the origin's form: declarations, producer, and weights in a file or not.

    Raises:
        ConversionFailed: ``graph-invalid``: an input or output was renamed, lost or given another type.
    """
    with opened(origin) as before, opened(made) as after:
        proto = after.proto
        for kind in ("input", "output"):
            _declare(proto, before, kind)
        used = {"" if n.domain == "ai.onnx" else n.domain for n in _nodes(proto)}
        kept = [e for e in proto.opset_import if ("" if e.domain == "ai.onnx" else e.domain) in used | {""}]
        versions = sorted({("" if e.domain == "ai.onnx" else e.domain): e.version for e in kept}.items())
        del proto.opset_import[:]
        for domain, version in versions:
            entry = proto.opset_import.add()
            entry.domain, entry.version = domain, version
        for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
            setattr(proto, field, getattr(before.proto, field))
        proto.graph.name = before.proto.graph.name
        del proto.metadata_props[:]
        proto.metadata_props.extend(before.proto.metadata_props)
        del proto.graph.value_info[:]
        with Writer(after, to, external=before.external) as writer:
            writer.finish(proto)


def _by_runtime(model: Path, folder: Path, level: str) -> Path:
    to = folder / f"{level.lower()}.onnx"
    with opened(model) as source:
        options = session_options(source, level)
        options.optimized_model_filepath = str(to)
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", _DATA)
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_min_size_in_bytes", str(SMALL)
        )
        open_graph(source.proto, source, options=options)
    return to


def _declare(proto: ModelProto, before: GraphFile, kind: str) -> None:
    """Give inputs or outputs the declarations that they had, free dimensions included."""
    now, was = getattr(proto.graph, kind), getattr(before.proto.graph, kind)
    types = [{v.name: v.type.tensor_type.elem_type for v in values} for values in (now, was)]
    order = [v.name for v in now] == [v.name for v in was]
    if not order or types[0] != types[1]:
        raise ConversionFailed(
            "graph-invalid",
            f"the {kind}s of the graph changed",
            evidence([f"{', '.join(v.name for v in was)} became {', '.join(v.name for v in now)}"]),
            "this is a fault of the tool",
        )
    copies = list(was)
    del now[:]
    now.extend(copies)


def _nodes(proto: ModelProto) -> list[NodeProto]:
    from repobuild.transforms.element_types import graphs

    return [node for _, graph in graphs(proto.graph) for node in graph.node]
