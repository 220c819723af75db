"""Whether every branch of a graph was compared: PyTorch's older exporter is trusted only as far as that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from repobuild.errors import ConversionFailed, RepobuildError, evidence
from repobuild.graph.walk import all_nodes
from repobuild.runners.onnxruntime import OnnxRuntimeRunner
from repobuild.tensors import Batch

if TYPE_CHECKING:
    from onnx import ModelProto

SHOWN = 6


def check_branches(
    proto: ModelProto, probe: Path, requests: Sequence[Batch], written: Sequence[str], given: str
) -> list[str]:
    """Make sure that both sides of every branch are taken by some request, since only those are compared.

    Args:
        proto: The graph in normal form.
        probe: File to write beside the graph's external data.
        requests: Everything that the graph is compared on.
        written: Where the model's branches and loops were written.
        given: The model file, for messages.

    Returns:
        Notes on branches inside other branches or loops, whose sides cannot be observed.

    Raises:
        ConversionFailed: ``branch-unseen``: one side of a branch is taken by no request.
    """
    from onnx import ModelProto, helper, save

    outer = [n for n in proto.graph.node if n.op_type == "If"]
    inner = sum(n.op_type == "If" for n in all_nodes(proto)) - len(outer)
    notes = [f"{inner} branches inside other branches or loops cannot be observed"] if inner > 0 else []
    if not outer:
        return notes
    watched = ModelProto()
    watched.CopyFrom(proto)
    names = list(dict.fromkeys(n.input[0] for n in outer))
    made = {o for n in proto.graph.node for o in n.output}
    names = [n for n in names if n in made]
    have = {v.name for v in watched.graph.output}
    watched.graph.output.extend(
        helper.make_tensor_value_info(name, 9, None) for name in names if name not in have
    )
    save(watched, str(probe))
    runner = OnnxRuntimeRunner(probe)
    seen: dict[str, set[bool]] = {name: set() for name in names}
    for request in requests:
        try:
            answers = runner.run(request)
        except RepobuildError:
            continue  # the edge check compares the same request, and tells
        for name in names:
            seen[name].update(bool(v) for v in answers[name].ravel().tolist())
    probe.unlink()
    unseen = [name for name, values in seen.items() if len(values) < 2]
    if unseen:
        sides = sorted({str(v).lower() for name in unseen for v in seen[name]})
        lines = [
            f"{len(unseen)} of {len(names)} branches went one way only ({', '.join(sides) or 'none'})",
            *(f"written at {place}" for place in written[:SHOWN]),
        ]
        raise ConversionFailed(
            "branch-unseen",
            f"{given} has a branch of which no sample takes the other side, so it was not compared",
            evidence(lines),
            "add samples that take both sides of the branch",
        )
    return notes
