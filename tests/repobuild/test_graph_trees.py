"""Graphs of trees answer as scikit-learn's at every threshold, and for missing values."""

import numpy as np
import pytest
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from repobuild.graph.normal import tensors_only
from repobuild.graph.trees import not_above
from repobuild.tensors import DType
from repobuild.worker.estimators import answers_of
from repobuild.worker.inputs import plan_feed
from repobuild.worker.sklearn_export import to_onnx
from repobuild.worker.trees import trees_of

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(400, 3)) + np.array([0.0, 1e3, -1e5])
VALUES = ROWS[:, 0] + np.sin(ROWS[:, 1]) * 3 + (ROWS[:, 2] > -1e5)
CLASSES = np.digitize(VALUES, [-1, 1])


def answers(model, rows, floats):
    """The last answer of the model and of its graph."""
    import onnxruntime

    kinds = answers_of(model, "m")
    proto, names = to_onnx(model, plan_feed(model, "m", [], None), floats, 17, kinds)
    proto = tensors_only(proto, 17)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    output = names[kinds[-1].name].partition("[")[0]
    got = session.run([output], {"X": rows.astype(floats.numpy)})[0]
    want = np.asarray(getattr(model, kinds[-1].method)(rows))
    return got.reshape(want.shape), want


def neighbours(model, dtype):
    """Rows at, just below and just above every threshold, on the grid of a float type."""
    inner = model.tree_ if hasattr(model, "tree_") else None
    rows = []
    if inner is not None:
        pairs = [(f, t) for f, t in zip(inner.feature, inner.threshold, strict=True) if f >= 0]
    else:
        nodes = np.concatenate([p.nodes for i in model._predictors for p in i])
        pairs = [(n["feature_idx"], n["num_threshold"]) for n in nodes if not n["is_leaf"]]
    for index, (feature, threshold) in enumerate(pairs):
        at = dtype(threshold)
        for value in (np.nextafter(at, dtype(-np.inf)), at, np.nextafter(at, dtype(np.inf))):
            row = ROWS[index % len(ROWS)].copy()
            row[feature] = value
            rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize("floats", [DType.FP32, DType.FP64])
@pytest.mark.parametrize(
    "model", [DecisionTreeRegressor(random_state=0), DecisionTreeClassifier(random_state=0)]
)
def test_a_decision_tree_splits_equally_at_every_threshold(model, floats):
    model.fit(ROWS, VALUES if "Regressor" in repr(model) else CLASSES)
    rows = neighbours(model, np.float32)
    got, want = answers(model, rows, floats)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert len(rows) > 100


@pytest.mark.parametrize(
    "model", [HistGradientBoostingRegressor(max_iter=8), HistGradientBoostingClassifier(max_iter=4)]
)
def test_a_histogram_booster_splits_equally_at_every_threshold_in_float64(model):
    model.fit(ROWS, VALUES if "Regressor" in repr(model) else CLASSES)
    got, want = answers(model, neighbours(model, np.float64), DType.FP64)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("floats", [DType.FP32, DType.FP64])
@pytest.mark.parametrize(
    "model",
    [
        RandomForestRegressor(7, random_state=0),
        RandomForestClassifier(7, random_state=0),
        ExtraTreesRegressor(3, random_state=0),
        DecisionTreeClassifier(random_state=0),
        make_pipeline(StandardScaler(), RandomForestRegressor(3, random_state=0)),
    ],
)
def test_trees_that_saw_no_missing_values_send_them_where_scikit_learn_does(model, floats):
    rows = (ROWS - [0, 1e3, -1e5]).astype(np.float32).astype(np.float64)
    model.fit(rows, VALUES if "Regressor" in repr(model) else CLASSES)
    holes = rows.copy()
    holes[RNG.random(rows.shape) < 0.3] = np.nan
    if isinstance(model, RandomForestRegressor | ExtraTreesRegressor | RandomForestClassifier):
        sides = {bool(left) for tree in trees_of(model) for left in tree.missing_left[~tree.leaves]}
        assert sides == {True, False}
    got, want = answers(model, holes, floats)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_the_trees_of_an_isolation_forest_are_known_in_both_of_its_operators():
    model = IsolationForest(n_estimators=5, random_state=0).fit(ROWS)
    holes = ROWS.copy()
    holes[::3, 1] = np.nan
    got, want = answers(model, holes, DType.FP32)
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_a_gradient_booster_in_float64_loads_and_answers_equally():
    model = GradientBoostingRegressor(n_estimators=5, random_state=0).fit(ROWS, VALUES)
    got, want = answers(model, ROWS, DType.FP64)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_not_above_is_the_largest_float32_that_is_not_above():
    values = np.array([0.1, -0.1, 1.0, 1 + 2**-40, 1 - 2**-40, 3e38, -1e-50, 1e300, 0.0])
    found = not_above(values)
    assert found.dtype == np.float32
    assert (found.astype(np.float64) <= values).all()
    inner = found < np.finfo(np.float32).max
    assert (np.nextafter(found[inner], np.float32(np.inf)).astype(np.float64) > values[inner]).all()
    assert inner.tolist() == [True] * 7 + [False, True]


@pytest.mark.parametrize(
    ("imputer", "hole"),
    [(SimpleImputer(), np.nan), (SimpleImputer(strategy="median", missing_values=-7.0), -7.0)],
)
def test_an_imputer_in_float64_loads_and_fills_the_same_values(imputer, hole):
    rows = ROWS.copy()
    rows[::5, 1] = hole
    model = make_pipeline(imputer, StandardScaler(), RandomForestRegressor(3, random_state=0))
    model.fit(rows, VALUES)
    got, want = answers(model, rows, DType.FP64)
    np.testing.assert_allclose(got, want, rtol=1e-5)
