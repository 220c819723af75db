"""Makes rows up for a model without samples, in the range that its fitted parts show."""

from __future__ import annotations

from typing import Any

from repobuild.feeds import Feed, Mode
from repobuild.tensors import Array
from repobuild.worker.columns import front

SEED = 20240229


def make_rows(estimator: Any, feed: Feed, count: int) -> dict[str, Array]:
    """Seeded rows: normal around what a scaler saw, uniform over a tree's thresholds, else standard normal.

    Args:
        estimator: The fitted estimator.
        feed: How it is fed; only numbers can be made up.
        count: Rows to make.

    Returns:
        Arrays as the model is asked with them, float64.
    """
    import numpy as np

    width = len(feed.columns) if feed.mode is Mode.FRAME_MATRIX else feed.width
    rng = np.random.default_rng(SEED)
    rows = rng.standard_normal((count, width))
    first = front(estimator)
    mean, scale, low, high = (
        np.asarray(getattr(first, n, ()), dtype=np.float64)
        for n in ("mean_", "scale_", "data_min_", "data_max_")
    )
    if mean.shape == scale.shape == (width,):
        rows = mean + rows * scale
    elif low.shape == high.shape == (width,):
        rows = rng.uniform(low, np.maximum(high, low), (count, width))
    else:
        for feature, values in _thresholds(first).items():
            if feature < width:
                reach = max(values) - min(values) or 1.0
                rows[:, feature] = rng.uniform(min(values) - reach / 8, max(values) + reach / 8, count)
    if feed.mode is Mode.FRAME_MATRIX:
        return {c.name: rows[:, i] for i, c in enumerate(feed.columns)}
    return {feed.name: rows}


def _thresholds(estimator: Any) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    members = getattr(estimator, "estimators_", None)
    trees = [estimator] if members is None else list(getattr(members, "flat", members))
    for tree in trees:
        inner = getattr(tree, "tree_", None)
        if inner is None:
            continue
        for feature, threshold in zip(inner.feature, inner.threshold, strict=True):
            if feature >= 0:
                found.setdefault(int(feature), []).append(float(threshold))
    for iteration in getattr(estimator, "_predictors", ()):
        for predictor in iteration:
            for node in predictor.nodes:
                if not node["is_leaf"]:
                    found.setdefault(int(node["feature_idx"]), []).append(float(node["num_threshold"]))
    return found
