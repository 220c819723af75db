"""Task metrics equal scikit-learn's, and budgets fail a build that exceeds them."""

import json

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score, root_mean_squared_error
from sklearn.neighbors import KNeighborsClassifier

from repobuild.metrics import measure
from repobuild.outputs import Wanted
from repobuild.recipe.types import Recipe, SourceRecipe
from repobuild.selection import Selection

RNG = np.random.default_rng(0)


@pytest.fixture
def recipe(tmp_path):
    return Recipe("m", SourceRecipe(tmp_path, "m"), None, "")


def test_metrics_are_scikit_learns(recipe):
    truth = RNG.integers(0, 2, 200)
    scores = np.round(RNG.random((200, 1)) * 0.6 + truth[:, None] * 0.3, 1)
    other = np.round(scores + RNG.normal(size=(200, 1)) * 0.2, 1)
    labels, flipped = (scores > 0.5).astype(int), (other > 0.5).astype(int)
    wanted = (
        Wanted("label", Selection("label"), is_label=True),
        Wanted("p", Selection.parse("probabilities[:, 1:2]")),
        Wanted("value", Selection("prediction")),
    )
    model = {"label": labels, "p": scores, "value": scores}
    artifact = {"label": flipped, "p": other, "value": other}
    found = {m.name: (m.model, m.artifact) for m in measure(recipe, wanted, [0, 1], truth, model, artifact)}
    assert found["accuracy"] == pytest.approx((accuracy_score(truth, labels), accuracy_score(truth, flipped)))
    assert found["auc"] == pytest.approx((roc_auc_score(truth, scores), roc_auc_score(truth, other)))
    assert found["rmse"] == pytest.approx(
        (root_mean_squared_error(truth, scores), root_mean_squared_error(truth, other))
    )


def test_labels_compare_across_types_and_indices(recipe):
    wanted = (Wanted("label", Selection("label"), is_label=True, index_of=("a", "b")),)
    answers = {"label": np.array([[0], [1], [1]])}
    [metric] = measure(recipe, wanted, ["a", "b"], np.array(["a", "b", "a"]), answers, answers)
    assert metric.model == pytest.approx(2 / 3)
    whole = (Wanted("label", Selection("label"), is_label=True),)
    [metric] = measure(recipe, whole, [0, 1], np.array([0.0, 1.0, 1.0]), answers, answers)
    assert metric.model == 1.0


@pytest.fixture
def build(project, repobuild_cli, tmp_path):
    """Converts with labels and a budget; gives the outcome and the report."""

    def run(model, rows, labels=None, **recipe):
        home = project(model, rows, **recipe)
        if labels is not None:
            np.save(home / "labels.npy", labels)
            document = json.loads((home / "recipe.yaml").read_text())
            (home / "recipe.yaml").write_text(json.dumps({**document, "labels": "labels.npy"}))
        report = tmp_path / "report.json"
        outcome = repobuild_cli(
            "convert", home, "-r", tmp_path / "r", "--trust", "pickle", "--report", report
        )
        return outcome, json.loads(report.read_text())

    return run


def test_accuracy_and_auc_of_model_and_artifact_are_reported(build):
    rows = RNG.normal(size=(80, 2))
    labels = (rows[:, 0] + RNG.normal(size=80) > 0).astype(int)
    model = LogisticRegression().fit(rows, labels)
    outcome, report = build(model, rows, labels, budget={"accuracy_drop": 0.0})
    assert outcome.status == 0, outcome.err
    found = {m["name"]: (m["model"], m["artifact"]) for m in report["metrics"]}
    assert found["accuracy"] == (model.score(rows, labels),) * 2
    assert found["auc"][0] == pytest.approx(roc_auc_score(labels, model.predict_proba(rows)[:, 1]))


def test_rmse_of_a_regressor_is_reported(build):
    rows = RNG.normal(size=(80, 2))
    outcome, report = build(LinearRegression().fit(rows, rows[:, 0]), rows, rows[:, 0] + 1)
    assert outcome.status == 0, outcome.err
    assert report["metrics"][0]["name"] == "rmse"
    assert report["metrics"][0]["artifact"] == pytest.approx(1.0, rel=1e-5)


def close_neighbours():
    """Neighbours that float32 cannot tell apart: labels flip when the input is held at FP32."""
    rows = 1e9 + np.arange(40, dtype=np.float64).reshape(-1, 1)
    return KNeighborsClassifier(1).fit(rows, np.arange(40) % 2), rows


FLOAT32 = [{"name": "X", "dtype": "FP32"}]
LABEL = [{"name": "label"}]


def test_a_budget_of_label_flips_lets_so_many_pass(build):
    model, rows = close_neighbours()
    outcome, report = build(model, rows, inputs=FLOAT32, outputs=LABEL)
    assert outcome.status == 4
    flips = 40 - int(next(c for c in report["checks"] if c["name"] == "equal: label")["detail"].split()[0])
    assert flips > 5
    low, _ = build(model, rows, inputs=FLOAT32, outputs=LABEL, budget={"label_flips": flips - 1})
    assert low.status == 4


def test_a_drop_of_accuracy_beyond_the_budget_fails(build):
    model, rows = close_neighbours()
    outcome, report = build(
        model,
        rows,
        np.arange(40) % 2,
        inputs=FLOAT32,
        outputs=LABEL,
        budget={"label_flips": 40, "accuracy_drop": 0.01},
    )
    assert outcome.status == 4
    assert "budget: accuracy_drop" in outcome.err
    assert report["metrics"][0]["model"] == 1.0
    assert report["metrics"][0]["artifact"] < 0.9


def test_a_file_beyond_the_budget_fails(build):
    rows = RNG.normal(size=(20, 2))
    outcome, _ = build(LinearRegression().fit(rows, rows[:, 0]), rows, budget={"file_mb": 0.00001})
    assert (outcome.status, "budget: file_mb" in outcome.err) == (4, True), outcome.err


@pytest.mark.parametrize(
    ("labels", "recipe", "words"),
    [
        (None, {"budget": {"accuracy_drop": 0.1}}, "accuracy_drop needs labels"),
        (np.arange(3), {}, "one target for each of the 20 samples"),
        (np.zeros((20, 2)), {}, "one target for each of the 20 samples"),
        (np.array(["a"] * 20), {}, "no output of the model can be compared"),
    ],
)
def test_labels_that_do_not_fit_are_named(build, labels, recipe, words):
    rows = RNG.normal(size=(20, 2))
    outcome, _ = build(LinearRegression().fit(rows, rows[:, 0]), rows, labels, **recipe)
    assert outcome.status == 3, outcome.err
    assert words in outcome.err
