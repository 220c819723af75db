"""``repobuild.convert`` from Python: objects handed over, the report handed back, one kind of error."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import LocalOutlierFactor

import repobuild
from repobuild.build import Refused
from repobuild.handing import write_estimator, write_table

ROWS = np.random.RandomState(0).uniform(0, 10, (60, 2))
TRUTH = (ROWS.sum(axis=1) > 10).astype(int)


@pytest.fixture(scope="module")
def estimator():
    """A classifier of two columns."""
    return LogisticRegression().fit(ROWS, TRUTH)


@pytest.fixture
def repository(tmp_path):
    """A repository that is not there yet."""
    return tmp_path / "models"


def test_an_estimator_becomes_a_version_and_a_report(estimator, repository, tree):
    report = repobuild.convert(
        estimator, samples=ROWS, repository=repository, name="churn", serving={"max_batch_size": 4}
    )
    assert isinstance(report, repobuild.Report)
    assert (report.model, report.version, report.changed, report.failed) == ("churn", 1, True, ())
    assert (report.samples["rows"], report.source["path"]) == (60, "estimator.joblib")
    assert "max_batch_size: 4" in (repository / "churn" / "config.pbtxt").read_text()
    before = tree(repository.parent)
    again = repobuild.convert(
        estimator, samples=ROWS, repository=str(repository), name="churn", serving={"max_batch_size": 4}
    )
    assert (again.version, again.changed) == (1, False)
    assert tree(repository.parent) == before


def test_two_builds_leave_the_same_bytes_and_no_temporary_path(estimator, tmp_path, tree):
    for name in ("one", "two"):
        repobuild.convert(estimator, samples=ROWS, repository=tmp_path / name)
    assert (tmp_path / "one" / "LogisticRegression").is_dir()
    first, second = (tree(tmp_path / f"{name}.repobuild") for name in ("one", "two"))
    assert first == second
    assert not any(b"/repobuild-" in content for content in first.values())


def test_errors_are_repobuild_errors_and_name_the_argument(estimator, repository):
    with pytest.raises(repobuild.RepobuildError) as caught:
        repobuild.convert(estimator, samples=ROWS[:, :1], repository=repository)
    assert caught.value.code == "samples-unfit"
    assert isinstance(caught.value.__cause__, Refused)
    assert any(e.file == "convert(samples=...)" for e in caught.value.evidence)
    with pytest.raises(repobuild.RepobuildError) as caught:
        repobuild.convert(estimator, samples=ROWS, repository=repository, name="a b", bogus=1)
    assert {(e.file, e.key) for e in caught.value.evidence} == {
        ("convert(name=...)", "name"),
        ("convert(bogus=...)", "bogus"),
    }
    assert not repository.exists()


@pytest.mark.parametrize(
    ("model", "keys"),
    [
        (LinearRegression().fit(ROWS, ROWS[:, 0]), {"samples": ROWS[:, :1]}),
        (LinearRegression().fit(ROWS, ROWS[:, 0]), {"samples": ROWS, "labels": [1, 2]}),
        (LinearRegression(), {"samples": ROWS}),
        (LocalOutlierFactor().fit(ROWS), {"samples": ROWS}),
        ({"model": 1}, {"samples": ROWS}),
    ],
    ids=["samples", "labels", "not fitted", "no new rows", "no estimator"],
)
def test_errors_do_not_name_the_folder_that_is_gone(model, keys, repository):
    with pytest.raises(repobuild.RepobuildError) as caught:
        repobuild.convert(model, repository=repository, **keys)
    assert "/repobuild-" not in str(caught.value)
    assert "samples: samples:" not in str(caught.value)


@pytest.mark.parametrize("broken", ["a model", 5, {"model": 1}], ids=repr)
def test_what_is_no_estimator_is_refused(broken, repository):
    with pytest.raises(repobuild.RepobuildError) as caught:
        repobuild.convert(broken, samples=ROWS, repository=repository, name="m")
    assert caught.value.code == ("model-missing" if isinstance(broken, str) else "not-an-estimator")


def test_a_path_needs_trust_as_on_the_command_line(risk_project, repository):
    words = {"samples": risk_project / "samples.npy", "repository": repository}
    with pytest.raises(repobuild.RepobuildError) as caught:
        repobuild.convert(risk_project / "model.joblib", **words)
    assert caught.value.code == "source-untrusted"
    assert repobuild.convert(risk_project / "model.joblib", trust=("pickle",), **words).model == "model"
    assert repobuild.convert(risk_project / "model.joblib", trust="pickle", **words).changed is False


def test_keys_of_the_source_are_joined(estimator, repository):
    report = repobuild.convert(estimator, samples=ROWS, repository=repository, source={"method": "predict"})
    assert list(report.source["answers"]) == ["label"]
    with pytest.raises(repobuild.RepobuildError) as caught:
        repobuild.convert(estimator, samples=ROWS, repository=repository, source="x")
    assert caught.value.code == "recipe-invalid"


def test_labels_give_metrics(estimator, repository):
    report = repobuild.convert(estimator, samples=ROWS, labels=TRUTH, repository=repository)
    assert report.version == 1
    assert "accuracy" in json.dumps(report.to_dict())


def test_a_data_frame_keeps_its_types(repository):
    import pandas as pd
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    frame = pd.DataFrame({"age": np.arange(30.0), "town": ["a", "b", "c"] * 10})
    model = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough"), LinearRegression()
    ).fit(frame, np.arange(30.0))
    report = repobuild.convert(model, samples=frame, repository=repository, name="frame")
    assert {t.name: t.dtype.value for t in report.signature.inputs if t.name == "town"} == {"town": "BYTES"}


def test_rows_of_many_kinds_are_written_with_their_types(tmp_path):
    import pandas as pd

    def loaded(value):
        file = write_table(value, tmp_path / "rows", "samples")
        read = np.load(file) if file.endswith(("npy", "npz")) else pd.read_parquet(file)
        return dict(read) if hasattr(read, "files") else read

    assert loaded(np.arange(3, dtype=np.int16)).dtype == np.int16
    assert loaded([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert loaded(["a", "bc"]).dtype.kind == "U"
    assert loaded(np.array(["a", "bc"], dtype=object)).tolist() == ["a", "bc"]
    named = loaded({"a": [1.5], "b": np.array([True])})
    assert {name: array.dtype.kind for name, array in named.items()} == {"a": "f", "b": "b"}
    frame = pd.DataFrame({"i": np.array([1], dtype=np.int32), "c": pd.Categorical(["x"])})
    assert (loaded(frame).dtypes == frame.dtypes).all()
    assert loaded(pd.Series([1, 2], name="y")).tolist() == [1, 2]
    assert write_table(tmp_path / "a.csv", tmp_path / "rows", "samples") == str(tmp_path / "a.csv")


@pytest.mark.parametrize(
    "value",
    [
        [[1], [2, 3]],
        [{"a": 1}],
        object(),
        5,
        {},
        {"file": [1]},
        {1: [1]},
        np.array([1 + 2j]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
    ],
    ids=lambda v: "object" if type(v) is object else repr(v),
)
def test_rows_without_a_type_on_the_wire_are_refused(tmp_path, value):
    with pytest.raises(repobuild.RepobuildError) as caught:
        write_table(value, tmp_path / "rows", "samples")
    assert caught.value.code == "samples-unfit"


def test_the_pin_is_that_of_the_file(estimator, tmp_path):
    from repobuild.artifact import file_digest

    source = write_estimator(estimator, tmp_path)
    assert source["sha256"] == file_digest(tmp_path / "estimator.joblib")


class Unpicklable(ClassifierMixin, BaseEstimator):
    """Holds a lock."""

    def __init__(self):
        import threading

        self.lock = threading.Lock()


def test_an_estimator_that_cannot_be_pickled_is_refused(repository):
    with pytest.raises(repobuild.RepobuildError) as caught:
        repobuild.convert(Unpicklable(), samples=ROWS, repository=repository, name="m")
    assert caught.value.code == "estimator-unpicklable"


SCRIPT = textwrap.dedent(
    """
    import sys
    import numpy as np
    from sklearn.linear_model import LinearRegression
    import repobuild

    class Mine(LinearRegression):
        pass

    if len(sys.argv) > 2:
        sys.modules["cloudpickle"] = None
    rows = np.arange(20.0).reshape(10, 2)
    try:
        report = repobuild.convert(Mine().fit(rows, rows[:, 0]), samples=rows, repository=sys.argv[1])
        print("built", report.model, report.version)
    except repobuild.RepobuildError as error:
        print(error.code, "|", "; ".join(e.text for e in error.evidence), "|", error.hint)
    """
)


def script(*words):
    """What the script prints in a Python of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, words)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_class_of_a_script_travels_with_its_code(repository):
    """skl2onnx may have no converter for a class of one's own; the class does reach the child process."""
    code, *_ = script(repository).split(" ")
    assert code in ("built", "no-converter")


def test_without_cloudpickle_a_class_of_a_script_is_refused_with_a_hint(repository):
    said = script(repository, "without")
    assert said.startswith("cloudpickle-missing | __main__.Mine;")
    assert "define its classes and functions in a module that can be imported" in said


def test_the_package_itself_stays_light():
    code = "import sys, repobuild; print([m for m in ('numpy', 'click', 'pydantic') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n"
    with pytest.raises(AttributeError, match="has no attribute 'bogus'"):
        repobuild.bogus  # noqa: B018


def test_notes_do_not_name_the_folder_that_is_gone(repository):
    from sklearn.preprocessing import KBinsDiscretizer

    binned = KBinsDiscretizer(4, encode="ordinal", strategy="uniform").fit(ROWS)
    report = repobuild.convert(binned, samples=ROWS, repository=repository)
    assert any("no graph" in note for note in report.notes), report.notes
    assert not any("/" in note.replace("ai.onnx.ml/", "") for note in report.notes), report.notes
