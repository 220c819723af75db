"""Makes a graph's trees split exactly as scikit-learn's: thresholds, and the way that missing values take.

A decision tree of scikit-learn rounds its rows to float32 and compares with a float64 threshold
(``sklearn.tree._tree.DTYPE``); in float32 the same split is made by the largest float32 that is not above the
threshold. A histogram booster compares in float64. A tree trained without missing values still answers rows
with some: each node sends them to the child that saw more samples (``missing_go_to_left``), which exporters
leave out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from repobuild.tensors import Array

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor")
LESS_OR_EQUAL = b"BRANCH_LEQ"
LEAF = b"LEAF"


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """One tree of the trained model, nodes in its own numbering.

    Attributes:
        features: ``[nodes]`` int64: the column that a node looks at.
        thresholds: ``[nodes]`` float64; a row goes left when its value is not above.
        leaves: ``[nodes]`` booleans.
        missing_left: ``[nodes]`` booleans: a missing value goes left.
        wide: Whether it compares in float64; else rows are rounded to float32 first.
    """

    features: Array
    thresholds: Array
    leaves: Array
    missing_left: Array
    wide: bool


def fit_trees(model: ModelProto, trees: Sequence[Tree], wide_nodes: frozenset[str]) -> frozenset[str]:
    """Write thresholds and ways of missing values into the tree operators that are made of known trees.

    Args:
        model: The graph; changed in place.
        trees: The trees of the model.
        wide_nodes: Tree operators (by last output) that take float64.

    Returns:
        Those of ``wide_nodes`` that now compare in float64.
    """
    known: dict[int, list[Tree]] = {}
    for tree in trees:
        known.setdefault(len(tree.leaves), []).append(tree)
    left_wide: set[str] = set()
    used: set[int] = set()
    for node in model.graph.node:
        if node.op_type not in TREES:
            continue
        matched = _match(node, known, used)
        if matched is None:
            continue
        name = node.output[-1]
        wide = name in wide_nodes and all(t.wide for t, _ in matched)
        _write(node, matched, wide=wide)
        if wide:
            left_wide.add(name)
    if left_wide:
        _raise_ml_opset(model)
    return frozenset(left_wide)


def _match(node: NodeProto, known: dict[int, list[Tree]], used: set[int]) -> list[tuple[Tree, Array]] | None:
    """For each tree of the operator the trained tree, and the trained node behind each of its nodes.

    Trees that split alike may still send missing values different ways, and the operator does not say which.
    Exporters keep the order of trees, so of those that split alike the first that is not used yet is taken.
    """
    import numpy as np

    attributes = {a.name: a for a in node.attribute}
    if "nodes_values" not in attributes:
        return None
    numbers = np.array(attributes["nodes_treeids"].ints)
    ids = np.array(attributes["nodes_nodeids"].ints)
    features = np.array(attributes["nodes_featureids"].ints)
    values = np.array(attributes["nodes_values"].floats, dtype=np.float32)
    modes = np.array(list(attributes["nodes_modes"].strings))
    if not np.isin(modes, (LESS_OR_EQUAL, LEAF)).all():
        return None
    starts = np.flatnonzero(np.r_[True, numbers[1:] != numbers[:-1]])
    matched = []
    for part in np.split(np.arange(len(numbers)), starts[1:]):
        have = known.get(len(part), ())
        fresh, spent = (t for t in have if id(t) not in used), (t for t in have if id(t) in used)
        where = ids[part], features[part], values[part], modes[part]
        found = next((t for t in (*fresh, *spent) if _same(t, *where)), None)
        if found is None:
            return None
        used.add(id(found))
        matched.append((found, ids[part]))
    return matched


def _same(tree: Tree, ids: Array, features: Array, values: Array, modes: Array) -> bool:
    import numpy as np

    if ids.max() >= len(tree.leaves) or not np.array_equal(tree.leaves[ids], modes == LEAF):
        return False
    split = ~tree.leaves[ids]
    if not np.array_equal(tree.features[ids][split], features[split]):
        return False
    rounded = tree.thresholds[ids][split].astype(np.float32)
    found = values[split]
    near = (
        (found == rounded)
        | (np.nextafter(rounded, -np.inf) == found)
        | (np.nextafter(rounded, np.inf) == found)
    )
    return bool(near.all())


def _write(node: NodeProto, matched: Sequence[tuple[Tree, Array]], *, wide: bool) -> None:
    import numpy as np
    from onnx import helper, numpy_helper

    thresholds = np.concatenate([np.where(t.leaves, 0.0, t.thresholds)[ids] for t, ids in matched])
    missing = np.concatenate([(t.missing_left & ~t.leaves)[ids] for t, ids in matched])
    kept = [
        type(a).FromString(a.SerializeToString())
        for a in node.attribute
        if a.name not in ("nodes_values", "nodes_missing_value_tracks_true")
    ]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.append(
        helper.make_attribute("nodes_missing_value_tracks_true", missing.astype(np.int64).tolist())
    )
    if wide:
        tensor = numpy_helper.from_array(thresholds, "nodes_values_as_tensor")
        node.attribute.append(helper.make_attribute("nodes_values_as_tensor", tensor))
    else:
        node.attribute.append(helper.make_attribute("nodes_values", not_above(thresholds).tolist()))


def not_above(values: Array) -> Any:
    """For each float64 the largest float32 that is not above it."""
    import numpy as np

    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32)
    return np.where(rounded.astype(np.float64) > values, np.nextafter(rounded, np.float32(-np.inf)), rounded)


def _raise_ml_opset(model: ModelProto) -> None:
    """Tensors of thresholds came with version 3 of the domain (onnx/onnx, docs/Changelog-ml.md)."""
    for entry in model.opset_import:
        if entry.domain == "ai.onnx.ml":
            entry.version = max(entry.version, 3)
