"""The trees of a fitted estimator, as the graph needs to know them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from repobuild.graph.trees import Tree


def trees_of(estimator: Any) -> Iterator[Tree]:
    """The trees of one decision tree, forest, gradient booster or histogram booster; nothing of others."""
    inner = getattr(estimator, "tree_", None)
    if inner is not None:
        yield _decision_tree(inner)
        return
    if hasattr(estimator, "_predictors") and hasattr(estimator, "_bin_mapper"):
        for iteration in estimator._predictors:  # noqa: SLF001 - there is no public way
            yield from (_booster_tree(p.nodes) for p in iteration)
        return
    members = getattr(estimator, "estimators_", None)
    for member in getattr(members, "flat", members if isinstance(members, list) else ()):
        inner = getattr(member, "tree_", None)
        if inner is not None:
            yield _decision_tree(inner)


def _decision_tree(inner: Any) -> Tree:
    import numpy as np

    leaves = np.asarray(inner.children_left) < 0
    missing = getattr(inner, "missing_go_to_left", None)
    left = np.zeros(len(leaves), dtype=bool) if missing is None else np.asarray(missing).astype(bool)
    features = np.asarray(inner.feature, dtype=np.int64)
    return Tree(features, np.asarray(inner.threshold, dtype=np.float64), leaves, left, wide=False)


def _booster_tree(nodes: Any) -> Tree:
    import numpy as np

    return Tree(
        np.asarray(nodes["feature_idx"], dtype=np.int64),
        np.asarray(nodes["num_threshold"], dtype=np.float64),
        np.asarray(nodes["is_leaf"]).astype(bool),
        np.asarray(nodes["missing_go_to_left"]).astype(bool),
        wide=True,
    )
