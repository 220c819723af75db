"""What estimators answer with, and what is said of those that cannot be served."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from repobuild.worker.estimators import answers_of
from repobuild.worker.sklearn_model import SklearnModel

ROWS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
CLASSES = (ROWS[:, 0] > 0).astype(float)


@pytest.mark.parametrize(
    ("estimator", "labels"),
    [
        (LogisticRegression(), ["label"]),
        (make_pipeline(StandardScaler(), LogisticRegression()), ["label"]),
        (KMeans(2, n_init=1), ["label"]),
        (IsolationForest(n_estimators=3), ["label"]),
        (Ridge(), []),
        (StandardScaler(), []),
    ],
)
def test_only_answers_that_name_a_class_or_cluster_are_labels(estimator, labels):
    estimator.fit(ROWS, CLASSES)
    model = SklearnModel(estimator, "m", [], [])
    assert model.description()["facts"]["labels"] == labels
    assert [a.name for a in answers_of(estimator, "m") if a.label] == labels
