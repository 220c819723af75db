"""Rows made from the samples, and converters that forget something, which they find."""

import numpy as np
import onnxruntime
import pytest
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.impute import KNNImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import TunedThresholdClassifierCV
from sklearn.neighbors import RadiusNeighborsRegressor
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer

import repobuild
from repobuild.edge_check import EdgeReference, edge_check, run_edges
from repobuild.errors import RepobuildError
from repobuild.feeds import Feed, FeedColumn, Mode
from repobuild.recipe.types import Bounds, Tolerance
from repobuild.report import Fail
from repobuild.samples.edges import edge_rows
from repobuild.samples.texts import FORMS
from repobuild.tensors import DType, take
from repobuild.worker.jumps import find_jumps

POSITIVE = np.random.default_rng(3).random((50, 3)) + 0.1
FRESH = np.concatenate([POSITIVE * 3, -POSITIVE, POSITIVE - 0.5, np.zeros((1, 3))])


def each(given):
    """Every row as a request of its own."""
    count = len(next(iter(given.values())))
    return [take(given, i, i + 1) for i in range(count)]


def rows_of(array, dtype=None):
    made = edge_rows({"X": array}, Feed(Mode.MATRIX, "X", (), dtype, width=array.shape[1]), {})
    return list(zip(made.about, made.given["X"], strict=True))


def test_rows_reach_half_the_range_beyond_the_samples_on_both_sides():
    beyond = [
        row for about, row in rows_of(np.array([[1.0, 10.0], [3.0, 30.0]])) if about == ("beyond", "column 1")
    ]
    assert [row[1] for row in beyond] == [0.0, 40.0]
    whole = [
        row.tolist()
        for about, row in rows_of(np.array([[1.0, 10.0], [3.0, 30.0]]))
        if about == ("beyond", "")
    ]
    assert whole == [[0.0, 0.0], [4.0, 40.0]]


def test_a_row_has_its_signs_turned_and_another_is_zero():
    made = dict(rows_of(np.array([[1.5, -2.0], [3.0, 4.0]])))
    assert made["negated", ""].tolist() == [-1.5, 2.0]
    assert made["zeros", ""].tolist() == [0.0, 0.0]


def test_whole_numbers_stay_whole_and_float32_stays_on_its_grid():
    for about, row in rows_of(np.array([[1.0, 2.0], [2.0, 7.0]])):
        if about[0] != "missing":
            assert row.tolist() == np.floor(row).tolist()
    grid = np.array([[0.1, 0.7], [0.2, 0.9]], dtype=np.float32).astype(np.float64)
    for about, row in rows_of(grid):
        if about[0] != "missing":
            assert row.tolist() == row.astype(np.float32).astype(np.float64).tolist()


def test_a_constant_column_is_left_on_both_sides():
    beyond = [row[0] for about, row in rows_of(np.array([[4.0], [4.0]])) if about == ("beyond", "column 0")]
    assert beyond == [2.0, 6.0]


def test_numbers_that_the_wire_does_not_hold_are_not_made():
    made = rows_of(np.array([[0.0, 250.0], [5.0, 255.0]]), DType.UINT8)
    values = np.array([row for about, row in made if about[0] != "missing"])
    assert values.min() >= 0
    assert values.max() <= 255
    assert ("negated", "") not in [about for about, _ in made]


def test_columns_of_a_frame_get_their_rows_and_integers_keep_their_type():
    feed = Feed(
        Mode.COLUMNS, "", (FeedColumn("n", "integer", "int64"), FeedColumn("t", "text", "object")), None
    )
    given = {"n": np.array([2, 6]), "t": np.array(["red fox", "cat"])}
    made = edge_rows(given, feed, {})
    assert made.given["n"].dtype == np.int64
    by_kind = {about: i for i, about in enumerate(made.about)}
    assert made.given["n"][by_kind["zeros", ""]] == 0
    assert {form for form, column in made.about if column == "t"} >= set(FORMS)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int8])
def test_whole_numbers_at_the_ends_of_their_type_stay_what_they_are(dtype):
    info = np.iinfo(dtype)
    feed = Feed(Mode.COLUMNS, "", (FeedColumn("n", "integer", np.dtype(dtype).name),), None)
    made = edge_rows({"n": np.array([info.min, info.max - 1, info.max], dtype=dtype)}, feed, {})
    assert made.given["n"].dtype == dtype
    assert {int(n) for n in made.given["n"]} >= {info.min, info.max}
    assert "beyond" not in {kind for kind, _ in made.about}


def test_words_of_one_piece_get_no_other_forms():
    feed = Feed(Mode.COLUMNS, "", (FeedColumn("t", "text", "object"),), None)
    made = edge_rows({"t": np.array(["red", "blue"])}, feed, {})
    assert not {kind for kind, _ in made.about} & set(FORMS)


@pytest.mark.parametrize(
    "estimator",
    [
        Normalizer(norm="max"),
        Normalizer(norm="l1"),
        MaxAbsScaler(clip=True),
        MaxAbsScaler(),
    ],
    ids=str,
)
def test_scalers_answer_alike_beyond_the_samples(estimator, tmp_path):
    model = estimator.fit(POSITIVE)
    repobuild.convert(model, samples=POSITIVE, repository=tmp_path, name="m")
    session = onnxruntime.InferenceSession(str(tmp_path / "m" / "1" / "model.onnx"))
    name = session.get_inputs()[0]
    dtype = np.float64 if name.type == "tensor(double)" else np.float32
    got = session.run(None, {name.name: FRESH.astype(dtype)})[0]
    np.testing.assert_allclose(got, model.transform(FRESH), rtol=1e-5, atol=1e-6)


class Clipped:
    """A graph that forgets nothing but what lies beyond the samples."""

    def run(self, wire):
        return {"y": np.clip(wire["X"][:, :1], 0.1, 1.1)}


def test_a_graph_that_differs_only_beyond_the_samples_is_found_and_its_check_fails():
    rows = edge_rows({"X": POSITIVE}, Feed(Mode.MATRIX, "X", (), None, width=3), {})
    answers = tuple({"y": row[None, :1]} for row in rows.given["X"])
    outcome = run_edges(Clipped(), each(rows.given), EdgeReference(rows.about, answers), Tolerance())
    assert {kind for (kind, _), _ in outcome.wrong} == {"beyond", "negated", "zeros"}
    verdict = edge_check(outcome).verdict
    assert isinstance(verdict, Fail)
    assert "values beyond those of the samples in column 0" in str(verdict)


class Rounded:
    """A graph that is off by a thousandth of its answers."""

    def run(self, wire):
        return {"y": wire["x"] * 1.001}


@pytest.mark.parametrize(("kind", "wrong"), [("large", 0), ("size", 1)])
def test_a_stated_tolerance_grows_with_values_beyond_the_samples_only(kind, wrong):
    large = np.array([[8.0]])
    reference = EdgeReference(((kind, ""),), ({"y": large},), {"y": 1.0})
    stated = Tolerance(Bounds(2e-3, 0), stated=True)
    outcome = run_edges(Rounded(), [{"x": large}], reference, stated)
    assert len(outcome.wrong) == wrong
    tight = Tolerance(Bounds(2e-3, 0), {"y": Bounds(5e-4, 0)}, stated=True)
    assert len(run_edges(Rounded(), [{"x": large}], reference, tight).wrong) == 1


def test_rows_that_the_model_refuses_are_no_jump():
    def ask(batch):
        if not np.isin(batch["X"], POSITIVE).all():
            raise ValueError("only rows that it knows")
        return batch["X"][:, :1]

    assert find_jumps(ask, {"X": POSITIVE}, frozenset()) == {}


def test_a_model_that_refuses_rows_far_from_its_own_still_gets_its_verdict(tmp_path):
    model = RadiusNeighborsRegressor(radius=0.2).fit(POSITIVE, POSITIVE[:, 0])
    with pytest.raises(RepobuildError) as refused:
        repobuild.convert(model, samples=POSITIVE, repository=tmp_path, name="m")
    assert refused.value.code != "source-failed"


@pytest.mark.parametrize("kind", [HistGradientBoostingClassifier, RandomForestClassifier])
def test_trees_that_split_alike_keep_their_own_ways_of_missing_values(kind, tmp_path):
    """Thresholds of data of zeros and ones are all alike, and the ways that missing values take are not."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (2000, 8)).astype(float)
    target = ((rows[:, 0] + rows[:, 1] * rows[:, 2] - rows[:, 3] + rng.normal(size=2000) / 2) > 0.5).astype(
        int
    )
    rows[rng.random(rows.shape) < (0.1 + 0.2 * (rows > 0) * target[:, None])] = np.nan
    count = {"max_iter": 20} if kind is HistGradientBoostingClassifier else {"n_estimators": 20}
    model = kind(max_depth=2, random_state=0, **count).fit(rows, target)
    repobuild.convert(model, samples=rows[:60], repository=tmp_path, name="m")
    session = onnxruntime.InferenceSession(str(tmp_path / "m" / "1" / "model.onnx"))
    got = dict(
        zip(
            [o.name for o in session.get_outputs()],
            session.run(None, {"X": rows.astype(np.float32)}),
            strict=True,
        )
    )
    np.testing.assert_allclose(got["probabilities"], model.predict_proba(rows), atol=1e-5)


def test_categorical_features_of_a_booster_are_refused_whether_samples_reach_them_or_not(tmp_path):
    rng = np.random.default_rng(0)
    rows = np.c_[rng.normal(size=(400, 2)), rng.integers(0, 5, 400)]
    target = rows[:, 0] + np.isin(rows[:, 2], [1, 4])
    model = HistGradientBoostingRegressor(max_iter=3, categorical_features=[2]).fit(rows, target)
    with pytest.raises(RepobuildError) as refused:
        repobuild.convert(model, samples=rows[:60], repository=tmp_path, name="m")
    assert refused.value.code == "no-converter"
    assert "columns 2" in refused.value.evidence[0].text


def test_a_tuned_threshold_is_refused_whether_samples_lie_beside_it_or_not(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 1)) * 2
    target = (rows[:, 0] + rng.normal(size=600) > 0.4).astype(int)
    model = TunedThresholdClassifierCV(LogisticRegression(), scoring="f1").fit(rows, target)
    far = rows[np.abs(rows[:, 0]) > 3]
    with pytest.raises(RepobuildError) as refused:
        repobuild.convert(model, samples=far, repository=tmp_path, name="m")
    assert refused.value.code == "no-converter"
    assert "threshold" in refused.value.message


def test_a_transformer_that_answers_with_frames_converts(tmp_path):
    model = MinMaxScaler().set_output(transform="pandas").fit(POSITIVE)
    assert repobuild.convert(model, samples=POSITIVE, repository=tmp_path, name="m").version == 1


class JumpsAt:
    """A graph whose answer jumps at a place of its own."""

    def __init__(self, place):
        self.place = place

    def run(self, wire):
        return {"y": (wire["X"][:, :1] > self.place).astype(float)}


@pytest.mark.parametrize(
    ("moved", "flipped", "off"), [(0.0, False, False), (1e-8, True, False), (1e-3, True, True)]
)
def test_a_jump_that_lies_a_step_elsewhere_fails_and_one_a_hair_away_is_told(moved, flipped, off):
    place = 0.6180339887
    jumps = find_jumps(lambda batch: (batch["X"][:, :1] > place).astype(float), {"X": POSITIVE}, frozenset())
    rows = edge_rows({"X": POSITIVE}, Feed(Mode.MATRIX, "X", (), None, width=3), jumps)
    answers = tuple(
        {"y": np.float64([[row[0] > place]])} if not np.isnan(row[0]) else "no NaN" for row in rows.given["X"]
    )
    outcome = run_edges(
        JumpsAt(place + moved), each(rows.given), EdgeReference(rows.about, answers), Tolerance()
    )
    assert (outcome.flipped > 0, outcome.off > 0) == (flipped, off)
    assert isinstance(edge_check(outcome).verdict, Fail) == off


def test_a_row_without_any_value_is_asked_too(tmp_path):
    """With opset 18, KNNImputer's graph stops at such a row, which the model answers."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3))
    rows[rng.random(rows.shape) < 0.2] = np.nan
    model = KNNImputer(n_neighbors=3).fit(rows)
    with pytest.raises(RepobuildError) as refused:
        repobuild.convert(model, samples=rows, repository=tmp_path, name="m", export={"opset": 18})
    assert refused.value.code == "check-failed"
    assert not (tmp_path / "m").exists()


def test_a_jump_at_zero_has_rows_a_real_step_beside_it():
    """Relative to the jump itself the step would be nothing, and float32 rounds such rows to zero."""
    rows = {"X": np.random.default_rng(0).uniform(-1, 1, (50, 1))}
    found = find_jumps(lambda batch: (batch["X"][:, 0] > 0).astype(float), rows, frozenset())
    near, wide = np.array_split(found["X"][:, 0], 2)
    assert np.abs(near).max() < 1e-20
    assert np.abs(wide).min() > 1e-7
    assert {*(wide > 0)} == {True, False}


@pytest.mark.parametrize("single", [frozenset(), frozenset({"small"})])
def test_numbers_beyond_float32_have_jumps_too(single):
    rng = np.random.default_rng(0)
    rows = {"large": rng.uniform(-1e300, 1e300, 50), "small": rng.integers(-9, 9, 50).astype(float)}
    found = find_jumps(lambda b: ((b["large"] > 1e299) + (b["small"] > 3.5)).astype(float), rows, single)
    assert np.abs(found["large"]).max() > 1e299
    assert np.isfinite(found["large"]).all()
