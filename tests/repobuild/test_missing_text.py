"""Missing text: asked as the model knows it, served as the empty text, and answered alike."""

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, TargetEncoder

import repobuild
from repobuild.errors import RepobuildError

RNG = np.random.default_rng(1)
COUNT = 160
NUMBERS = RNG.normal(size=COUNT)
TEXTS = RNG.choice(["x", "y", "nan"], COUNT).astype(object)
TARGET = (NUMBERS + (TEXTS == "x") > 0.3).astype(int)


def frame(missing, dtype=object):
    texts = TEXTS.copy()
    texts[::7] = missing
    return pd.DataFrame({"num": NUMBERS, "c": pd.Series(texts, dtype=dtype)})


def fitted(encoder, rows, final=None):
    columns = make_column_transformer((encoder, ["c"]), remainder="passthrough")
    return make_pipeline(columns, final or LogisticRegression()).fit(rows, TARGET)


def serve(folder, rows):
    """The served probabilities, where missing text is sent as the empty text."""
    session = onnxruntime.InferenceSession(str(folder / "m" / "1" / "model.onnx"))
    kinds = {i.name: i.type for i in session.get_inputs()}
    number = np.float64 if kinds["num"] == "tensor(double)" else np.float32
    texts = np.array([t if isinstance(t, str) else "" for t in rows.c], dtype=object).reshape(-1, 1)
    feed = {"num": rows.num.to_numpy(number).reshape(-1, 1), "c": texts}
    if "d" in kinds:
        feed["d"] = rows.d.to_numpy(object).reshape(-1, 1)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feed), strict=True))


ENCODERS = {
    "one-hot": OneHotEncoder(handle_unknown="ignore"),
    "one-hot that refuses": OneHotEncoder(),
    "ordinal": OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2),
    "target": TargetEncoder(),
}


@pytest.mark.parametrize(
    ("missing", "dtype", "sampled"),
    [(None, object, True), (np.nan, object, True), (np.nan, object, False), (np.nan, "category", True)],
    ids=["None", "NaN", "NaN, none of it in the samples", "categorical"],
)
@pytest.mark.parametrize("encoder", ENCODERS.values(), ids=ENCODERS)
def test_a_known_missing_category_is_reached_by_the_empty_text(encoder, missing, dtype, sampled, tmp_path):
    rows = frame(missing, dtype)
    model = fitted(encoder, rows)
    samples = rows if sampled else rows[rows.c.notna()]
    report = repobuild.convert(model, samples=samples, repository=tmp_path, name="m")
    np.testing.assert_allclose(serve(tmp_path, rows)["probabilities"], model.predict_proba(rows), atol=1e-6)
    assert any("column 'c'" in n and "empty string ''" in n for n in report.notes)


@pytest.mark.parametrize("unknown", [np.nan, -1])
def test_the_usual_ordinal_encoder_before_a_histogram_booster_is_served(unknown, tmp_path):
    rows = frame(np.nan)
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=unknown)
    model = fitted(encoder, rows, HistGradientBoostingClassifier(max_iter=5))
    repobuild.convert(model, samples=rows, repository=tmp_path, name="m")
    fresh = rows.assign(c=np.resize(np.array(["x", "unheard of", np.nan], dtype=object), COUNT))
    np.testing.assert_allclose(serve(tmp_path, fresh)["probabilities"], model.predict_proba(fresh), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
@pytest.mark.parametrize("most", [None, 3])
def test_several_columns_with_and_without_missing_text_share_one_encoder(most, dtype, tmp_path):
    rows = frame(np.nan).assign(d=np.resize(["p", "q", "q", "r", "q", "p", "s"], COUNT).astype(object))
    encoder = OrdinalEncoder(
        handle_unknown="use_encoded_value",
        unknown_value=-1,
        encoded_missing_value=-2,
        max_categories=most,
        dtype=dtype,
    )
    columns = make_column_transformer((encoder, ["c", "d"]), remainder="passthrough")
    model = make_pipeline(columns, LogisticRegression()).fit(rows, TARGET)
    repobuild.convert(model, samples=rows, repository=tmp_path, name="m")
    fresh = rows.assign(
        c=np.resize(np.array(["x", "unheard of", np.nan, "y"], dtype=object), COUNT),
        d=np.resize(np.array(["s", "p", "unheard of"], dtype=object), COUNT),
    )
    np.testing.assert_allclose(serve(tmp_path, fresh)["probabilities"], model.predict_proba(fresh), atol=1e-6)


@pytest.mark.parametrize("missing", [None, np.nan], ids=["None", "NaN"])
@pytest.mark.parametrize("how", [{"strategy": "most_frequent"}, {"strategy": "constant", "fill_value": "y"}])
def test_an_imputer_of_text_fills_in_for_the_empty_text(how, missing, tmp_path):
    rows = frame(missing)
    encoder = make_pipeline(
        SimpleImputer(missing_values=missing, **how), OneHotEncoder(handle_unknown="ignore")
    )
    model = fitted(encoder, rows)
    repobuild.convert(model, samples=rows, repository=tmp_path, name="m")
    np.testing.assert_allclose(serve(tmp_path, rows)["probabilities"], model.predict_proba(rows), atol=1e-6)


def test_a_model_to_which_none_and_nan_are_two_things_is_told(tmp_path):
    rows = frame(None)
    encoder = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="y"), OneHotEncoder(handle_unknown="ignore")
    )
    report = repobuild.convert(fitted(encoder, rows), samples=rows, repository=tmp_path, name="m")
    assert any("None and NaN are two things" in n and "asked as nan" in n for n in report.notes)


def test_missing_text_beside_an_empty_category_is_refused_since_the_wire_cannot_tell_them(tmp_path):
    rows = frame(np.nan)
    rows.loc[::5, "c"] = ""
    with pytest.raises(RepobuildError) as refused:
        repobuild.convert(fitted(OneHotEncoder(), rows), samples=rows, repository=tmp_path, name="m")
    assert refused.value.code == "check-failed"


RARE = {"min_frequency": 30}


@pytest.mark.parametrize(
    "options",
    [
        {**RARE, "handle_unknown": "infrequent_if_exist"},
        {**RARE, "handle_unknown": "ignore", "drop": "first"},
        {"max_categories": 2, "handle_unknown": "infrequent_if_exist", "drop": "first", "dtype": np.int64},
        {"handle_unknown": "infrequent_if_exist"},
    ],
    ids=str,
)
@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.filterwarnings("ignore:Found unknown categories")
def test_infrequent_and_unknown_categories_are_grouped_as_the_encoder_groups_them(options, missing, tmp_path):
    rows = frame(np.nan) if missing else frame("x")
    rows = rows.assign(d=np.resize(["p", "q", "q", "p", "q", "p", "rare"], COUNT).astype(object))
    columns = make_column_transformer((OneHotEncoder(**options), ["c", "d"]), remainder="passthrough")
    model = make_pipeline(columns, LogisticRegression()).fit(rows, TARGET)
    repobuild.convert(model, samples=rows, repository=tmp_path, name="m")
    unknown = ["x", "unheard of", np.nan if missing else "y"]
    fresh = rows.assign(
        c=np.resize(np.array(unknown, dtype=object), COUNT),
        d=np.resize(np.array(["rare", "p", "unheard of", "q"], dtype=object), COUNT),
    )
    np.testing.assert_allclose(serve(tmp_path, fresh)["probabilities"], model.predict_proba(fresh), atol=1e-6)


DOCUMENTS = [
    "a cat sat on the mat",
    "no dog barks",
    "Éa café ab_c 12",
    "mat and dog a b",
    "the cat barks",
] * 4
FRESH = [
    "noël mat",
    "CAT\n\nsat",
    "ÉA  CAFÉ",
    "x",
    "12 3 4 ab_c",
    "cat-mat.dog",
    "日本語 mat",
    "cat\u0301 sat",
]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ngram_range": (1, 2)},
        {"lowercase": False},
        {"token_pattern": r"(?u)\b\w+\b"},
        {"stop_words": ["the", "no"]},
    ],
)
def test_words_of_any_language_are_found_as_scikit_learn_finds_them(options, tmp_path):
    model = CountVectorizer(**options).fit(DOCUMENTS)
    report = repobuild.convert(model, samples=DOCUMENTS, repository=tmp_path, name="m")
    session = onnxruntime.InferenceSession(str(tmp_path / "m" / "1" / "model.onnx"))
    got = session.run(None, {"text": np.array(FRESH, dtype=object).reshape(-1, 1)})[0]
    np.testing.assert_array_equal(got, model.transform(FRESH).toarray())
    assert not [n for n in report.notes if "answered otherwise" in n]


def test_stop_words_between_the_words_of_n_grams_are_refused(tmp_path):
    model = CountVectorizer(ngram_range=(1, 2), stop_words=["the", "no"]).fit(DOCUMENTS)
    with pytest.raises(RepobuildError) as refused:
        repobuild.convert(model, samples=["cat barks", "mat sat"] * 4, repository=tmp_path, name="m")
    assert refused.value.code == "no-converter"
    assert "stop words" in refused.value.message


def test_a_form_of_text_that_the_graph_answers_otherwise_is_told(tmp_path):
    model = CountVectorizer(analyzer="char").fit(DOCUMENTS)
    report = repobuild.convert(model, samples=DOCUMENTS, repository=tmp_path, name="m")
    told = [n for n in report.notes if "answered otherwise" in n]
    assert len(told) == 1
    assert told[0].startswith("texts with runs of white space in text")
