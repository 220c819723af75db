"""The golden rows: what is replayed through a server, now and later."""

from __future__ import annotations

from repobuild.checks import spread
from repobuild.compare import as_rows
from repobuild.export import Graph
from repobuild.tensors import Batch, Signature, rows
from repobuild.verify.replay import Golden

GOLDEN_ROWS = 64


def golden_rows(graph: Graph, signature: Signature, answers: Batch) -> Golden:
    """Sample rows, spread evenly, and what the model itself answers to them.

    Rows whose label flipped within the budget are left out, since the served model answers them otherwise.
    Without a batch dimension an answer may depend on the other rows, so all of them are one request.

    Args:
        graph: The graph, with the samples and the model's answers.
        signature: The emitted tensors.
        answers: The artifact's answers to the samples.
    """
    import numpy as np

    if not signature.batched:
        return Golden(graph.wire, graph.reference.batched, graph.tolerance, graph.further)
    count = rows(graph.wire)
    usable = list(range(count))
    if signature.batched:
        same = np.ones(count, dtype=bool)
        for wanted in graph.wanted:
            if wanted.is_label:
                differ = as_rows(answers[wanted.name]) != as_rows(graph.reference.batched[wanted.name])
                same &= ~differ.reshape(count, -1).any(axis=1)
        kept = np.flatnonzero(same).tolist() or usable
        usable = [kept[i] for i in spread(len(kept), GOLDEN_ROWS)]
    return Golden(
        {name: array[usable] for name, array in graph.wire.items()},
        {name: array[usable] for name, array in graph.reference.batched.items()},
        graph.tolerance,
        graph.further,
    )
