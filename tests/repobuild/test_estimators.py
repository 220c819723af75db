"""What estimators answer with, and what is said of those that cannot be served."""

import bz2
import gzip
import lzma
import zlib

import joblib
import numpy as np
import pytest
from sklearn.cluster import DBSCAN, KMeans
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.manifold import TSNE
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, StandardScaler

from repobuild.errors import EnvironmentLacking, InputInvalid
from repobuild.worker.estimators import answers_of, width_of
from repobuild.worker.loading import load_estimator
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


@pytest.mark.parametrize("kind", [int, np.int64, np.int32])
def test_a_width_may_be_any_integer(kind):
    estimator = Ridge().fit(ROWS, CLASSES)
    estimator.n_features_in_ = kind(3)
    assert SklearnModel(estimator, "m", [], []).description()["feed"]["width"] == 3
    assert type(width_of(estimator, "m")) is int


TEXTS = ["one fish", "two fish"]


@pytest.mark.parametrize(
    "estimator",
    [
        TfidfVectorizer().fit(TEXTS),
        HashingVectorizer(),
        make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(TEXTS, [0, 1]),
    ],
)
def test_an_estimator_of_texts_gets_one_text_input(estimator):
    feed = SklearnModel(estimator, "m", [], []).description()["feed"]
    assert (feed["mode"], feed["name"], feed["dtype"], feed["width"]) == ("documents", "text", "BYTES", 1)


@pytest.mark.parametrize(
    ("estimator", "code"),
    [
        (TfidfVectorizer(), "not-fitted"),
        (LabelEncoder(), "not-fitted"),
        (make_pipeline(TfidfVectorizer(), LogisticRegression()), "not-fitted"),
        (LabelEncoder().fit(TEXTS), "input-not-matrix"),
    ],
)
def test_a_fitted_estimator_without_columns_is_not_called_unfitted(estimator, code):
    with pytest.raises(InputInvalid) as caught:
        SklearnModel(estimator, "m", [], [])
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (DBSCAN(), "answers only for the rows it was trained on"),
        (TSNE(), "answers only for the rows it was trained on"),
        (LocalOutlierFactor(), "answers only for the rows it was trained on"),
        (NearestNeighbors(), "has neither predict nor transform"),
    ],
)
def test_an_estimator_without_answers_for_new_rows_is_told_apart(estimator, said):
    with pytest.raises(InputInvalid) as caught:
        answers_of(estimator, "m")
    assert caught.value.code == "no-new-rows"
    assert said in caught.value.message


def test_a_classifier_of_several_targets_can_answer_with_labels_alone():
    targets = np.stack([CLASSES, 1 - CLASSES], axis=1)
    model = SklearnModel(RandomForestClassifier(3).fit(ROWS, targets), "m", [], [])
    with pytest.raises(InputInvalid) as caught:
        model.predict({"X": ROWS}, one_by_one=False)
    assert caught.value.code == "answer-not-tensor"
    found = model.predict({"X": ROWS}, one_by_one=False, answers=["label"])
    assert {name: array.shape for name, array in found.items()} == {"label": (40, 2)}


class Raises:
    """Raises an exception when it is unpickled."""

    def __init__(self, expression):
        self.expression = expression

    def __reduce__(self):
        return exec, (f"raise {self.expression}",)


@pytest.mark.parametrize(
    ("expression", "code", "kind"),
    [
        (
            "ValueError('node array from the pickle has another dtype')",
            "model-unloadable",
            InputInvalid,
        ),
        ("KeyError('MT19937')", "model-unloadable", InputInvalid),
        ("IndexError('tuple index out of range')", "model-unloadable", InputInvalid),
        ("TypeError('__cinit__() takes 3 arguments')", "model-unloadable", InputInvalid),
        ("ImportError('cannot import name gone')", "model-unloadable", InputInvalid),
        ("ModuleNotFoundError('no', name='sklearn.tree.gone')", "module-missing", EnvironmentLacking),
        ("ModuleNotFoundError('no', name='never_installed.part')", "module-missing", EnvironmentLacking),
    ],
)
def test_a_file_of_another_version_is_not_called_damaged(tmp_path, expression, code, kind):
    joblib.dump(Raises(expression), tmp_path / "m")
    with pytest.raises(kind) as caught:
        load_estimator("joblib", tmp_path / "m", "m")
    assert caught.value.code == code
    assert ("installed here: scikit-learn" in caught.value.render()) == ("never_installed" not in expression)


def test_an_error_that_only_code_of_the_model_raises_stays_its_own(tmp_path):
    joblib.dump(Raises("ZeroDivisionError"), tmp_path / "m")
    with pytest.raises(ZeroDivisionError):
        load_estimator("joblib", tmp_path / "m", "m")


def cut(content):
    return content[: len(content) // 2]


def spoil(content):
    middle = len(content) // 2
    return content[:middle] + bytes(64) + content[middle + 64 :]


PACKERS = [zlib.compress, gzip.compress, bz2.compress, lzma.compress]


@pytest.mark.parametrize(
    ("pack", "harm"), [(bytes, cut), *((pack, harm) for pack in PACKERS for harm in (cut, spoil))]
)
def test_damage_is_called_damage(tmp_path, pack, harm):
    plain = tmp_path / "plain"
    joblib.dump(np.random.default_rng(0).normal(size=5000), plain)
    (tmp_path / "m").write_bytes(harm(pack(plain.read_bytes())))
    with pytest.raises(InputInvalid) as caught:
        load_estimator("joblib", tmp_path / "m", "m")
    assert caught.value.code == "model-damaged"


class OldRidge:
    """Pickles as a Ridge that an older scikit-learn saved."""

    def __reduce__(self):
        return Ridge, (), Ridge().fit(ROWS, CLASSES).__getstate__() | {"_sklearn_version": "0.1"}


def test_the_note_on_another_version_is_whole(tmp_path):
    joblib.dump(OldRidge(), tmp_path / "m")
    [note] = load_estimator("joblib", tmp_path / "m", "m")[1]
    assert note.startswith("Trying to unpickle estimator Ridge from version 0.1")
    assert note.endswith("Use at your own risk.")
