"""FP32 or FP64 is chosen by what the graphs answer, and the choice is told."""

import json

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from repobuild.edge_check import EdgeOutcome
from repobuild.errors import ConversionFailed, InputInvalid
from repobuild.feeds import Feed, Mode
from repobuild.precision import Candidate, choose_precision
from repobuild.samples.fit import DoesNotFit
from repobuild.tensors import DType, Signature
from repobuild.worker.jumps import find_jumps

OPEN = Feed(Mode.MATRIX, "X", (), None, width=2)
FIXED = Feed(Mode.MATRIX, "X", (), DType.FP32, width=2)


def candidate(floats, wrong=0, *, off=0, flipped=0):
    rows = [(("extreme", "column 0"), "differs")] * off + [(("threshold", ""), "differs")] * flipped
    outcome = EdgeOutcome(5, 0, tuple(rows), ())
    return Candidate(
        floats, None, Signature((), (), batched=True), wrong, "worst" if wrong else "", outcome, ()
    )


def choose(feed, **made):
    asked = []

    def make(floats):
        asked.append(floats.value)
        found = made[floats.value]
        if isinstance(found, Exception):
            raise found
        return found

    return choose_precision(feed, make), asked


def test_float32_that_holds_is_taken_without_trying_more():
    choice, asked = choose(OPEN, FP32=candidate(DType.FP32))
    assert (choice.candidate.floats, asked, choice.notes) == (DType.FP32, ["FP32"], ())


@pytest.mark.parametrize("trouble", [{"wrong": 3}, {"off": 1}, {"flipped": 2}])
def test_float64_is_taken_when_only_it_holds_and_the_reason_is_noted(trouble):
    choice, asked = choose(OPEN, FP32=candidate(DType.FP32, **trouble), FP64=candidate(DType.FP64))
    assert (choice.candidate.floats, asked) == (DType.FP64, ["FP32", "FP64"])
    assert "float32 loses precision" in choice.notes[0]


def test_a_fixed_type_is_not_changed():
    choice, asked = choose(FIXED, FP32=candidate(DType.FP32, wrong=1))
    assert (choice.candidate.wrong, asked) == (1, ["FP32"])


def test_where_neither_holds_the_one_with_fewer_differences_is_left_to_the_checks():
    choice, _ = choose(OPEN, FP32=candidate(DType.FP32, wrong=5), FP64=candidate(DType.FP64, wrong=7))
    assert choice.candidate.floats is DType.FP32
    assert "neither float32 nor float64" in choice.notes[0]


def test_a_precision_without_graph_gives_way_to_the_other():
    failure = ConversionFailed("runtime-refuses", "no", (), None)
    choice, _ = choose(OPEN, FP32=candidate(DType.FP32, flipped=1), FP64=failure)
    assert choice.candidate.floats is DType.FP32
    choice, _ = choose(
        OPEN, FP32=DoesNotFit(InputInvalid("samples-unfit", "x", (), None)), FP64=candidate(DType.FP64)
    )
    assert choice.candidate.floats is DType.FP64


def test_without_any_graph_the_first_error_stands():
    first = ConversionFailed("no-converter", "first", (), None)
    with pytest.raises(ConversionFailed, match="first"):
        choose(OPEN, FP32=first, FP64=ConversionFailed("x", "second", (), None))


def test_jumps_of_a_step_are_found_on_both_sides_and_smooth_answers_have_none():
    rows = {"X": np.random.default_rng(0).uniform(-1, 1, (50, 3))}
    found = find_jumps(lambda b: (b["X"][:, 1] > 0.123456789).astype(float), rows, frozenset())
    sides = found["X"][:, 1] > 0.123456789
    assert sides.any()
    assert (~sides).any()
    near, wide = np.array_split(found["X"][:, 1], 2)
    np.testing.assert_allclose(near, 0.123456789, rtol=1e-8)
    away = np.abs(wide - 0.123456789)
    assert away.min() > 0.123e-4
    assert away.max() < 1.01e-4
    assert find_jumps(lambda b: b["X"].sum(axis=1), rows, frozenset()) == {}


def test_jumps_of_float32_data_stay_on_its_grid():
    rows = {"X": np.random.default_rng(0).uniform(-1, 1, (50, 1)).astype(np.float32).astype(np.float64)}
    found = find_jumps(lambda b: (b["X"][:, 0] > 0.3).astype(float), rows, frozenset({"X"}))
    values = np.unique(np.array_split(found["X"], 2)[0])
    assert np.array_equal(found["X"], found["X"].astype(np.float32))
    assert np.array_equal(values.astype(np.float32).astype(np.float64), values)
    assert len(values) == 2
    assert np.nextafter(np.float32(values[0]), np.float32(1)) == np.float32(values[1])


@pytest.fixture
def precision_of(project, repobuild_cli, tmp_path):
    """Converts a model and gives the input type of its configuration and the report."""

    def run(model, rows, **recipe):
        home = project(model, rows, **recipe)
        report = tmp_path / "report.json"
        outcome = repobuild_cli(
            "convert", home, "-r", tmp_path / "repository", "--trust", "pickle", "--report", report
        )
        assert outcome.status == 0, outcome.err
        document = json.loads(report.read_text())
        return document["signature"]["inputs"][0]["datatype"], document

    return run


def test_a_histogram_booster_of_float64_rows_is_served_in_float64(precision_of):
    rows = np.random.default_rng(0).normal(size=(300, 3)) * 1e-3 + 1000
    model = HistGradientBoostingClassifier(max_iter=10).fit(rows, rows[:, 0] > 1000)
    dtype, report = precision_of(model, rows[:20])
    assert dtype == "FP64"
    assert [(a["precision"], a["holds"]) for a in report["precision"]] == [("FP32", False), ("FP64", True)]


def test_the_same_booster_of_float32_rows_is_served_in_float32(precision_of):
    rows = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    model = HistGradientBoostingClassifier(max_iter=10).fit(rows, rows[:, 0] > 0)
    assert precision_of(model, rows[:20])[0] == "FP32"


def test_a_forest_on_raw_rows_needs_no_float64(precision_of):
    rows = np.random.default_rng(0).normal(size=(300, 3))
    model = RandomForestRegressor(5, random_state=0).fit(rows, rows[:, 0] * 100)
    assert precision_of(model, rows[:20])[0] == "FP32"


def test_a_forest_behind_a_scaler_does(precision_of):
    rows = np.random.default_rng(0).integers(0, 25, (500, 2)) + np.array([1e5 + 1 / 3, -4e6])
    model = make_pipeline(StandardScaler(), RandomForestRegressor(5, random_state=0))
    dtype, report = precision_of(model.fit(rows, rows[:, 0] % 7 * 1000), rows[:20])
    assert dtype == "FP64"
    assert any("float32 loses precision" in n for n in report["notes"])


def test_time_stamps_are_served_in_float64(precision_of):
    rows = 1.7e9 + np.random.default_rng(0).uniform(0, 3600, (50, 1))
    model = LinearRegression().fit(rows, rows[:, 0] - 1.7e9)
    assert precision_of(model, rows)[0] == "FP64"
