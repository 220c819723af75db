"""Models of DataFrames and of texts: which inputs they get, and that they are served as trained."""

import json

import joblib
import numpy as np
import pandas as pd
import pytest
from google.protobuf import text_format
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from repobuild.triton import parse_config

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 80, 120).astype(float),
        "port": RNG.choice(["S", "C", "Q"], 120),
        "rooms": RNG.integers(1, 6, 120),
        "paid": RNG.choice([True, False], 120),
    }
)
FRAME.loc[::9, "age"] = np.nan
TARGET = ((FRAME.port == "S") | (FRAME.rooms > 4)).astype(int)


def mixed():
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = ColumnTransformer(
        [
            ("num", numbers, ["age", "rooms"]),
            ("cat", OneHotEncoder(handle_unknown="ignore"), ["port"]),
        ]
    )
    return make_pipeline(columns, LogisticRegression()).fit(FRAME, TARGET)


@pytest.fixture
def converted(tmp_path, repobuild_cli):
    """Converts a model with samples of a DataFrame; gives the outcome, the configuration and the report."""

    def run(model, frame, file="samples.csv", **recipe):
        home = tmp_path / "project"
        home.mkdir(exist_ok=True)
        joblib.dump(model, home / "model.joblib")
        writer = {"csv": frame.to_csv, "parquet": frame.to_parquet}.get(file.rpartition(".")[2])
        if writer:
            writer(home / file, index=False)
        else:
            frame.to_json(home / file, orient="records", lines=True)
        document = {"name": "m", "source": {"path": "model.joblib"}, "samples": file, **recipe}
        (home / "recipe.yaml").write_text(json.dumps(document))
        report = tmp_path / "report.json"
        repository = tmp_path / "repository"
        outcome = repobuild_cli("convert", home, "-r", repository, "--trust", "pickle", "--report", report)
        path = repository / "m" / "config.pbtxt"
        config = parse_config(path.read_text(), path) if path.exists() else None
        return outcome, config, json.loads(report.read_text())

    return run


def tensors(items):
    return [
        (
            t.name,
            type(t).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[t.data_type].name,
            list(t.dims),
        )
        for t in items
    ]


@pytest.mark.parametrize("file", ["samples.csv", "samples.parquet", "samples.jsonl"])
def test_a_mixed_frame_gets_one_input_a_column_typed_from_the_data(converted, file):
    outcome, config, report = converted(mixed(), FRAME, file)
    assert outcome.status == 0, outcome.err
    assert tensors(config.input) == [
        ("age", "TYPE_FP32", [1]),
        ("port", "TYPE_STRING", [1]),
        ("rooms", "TYPE_INT64", [1]),
        ("paid", "TYPE_BOOL", [1]),
    ]
    edges = next(c for c in report["checks"] if c["name"] == "edge rows")
    assert edges["outcome"] == "pass"


def test_the_served_frame_answers_rows_with_missing_and_unseen_values(converted, served, tmp_path):
    model = mixed()
    assert converted(model, FRAME)[0].status == 0
    rows = FRAME.iloc[:3].copy()
    rows["port"] = ["S", "never seen", "Q"]
    inputs = [
        {"name": "age", "datatype": "FP32", "shape": [3, 1], "data": rows.age.tolist()},
        {"name": "port", "datatype": "BYTES", "shape": [3, 1], "data": rows.port.tolist()},
        {"name": "rooms", "datatype": "INT64", "shape": [3, 1], "data": rows.rooms.tolist()},
        {"name": "paid", "datatype": "BOOL", "shape": [3, 1], "data": rows.paid.tolist()},
    ]
    import urllib.request

    with served(tmp_path / "repository") as server:
        body = json.dumps({"inputs": inputs}).encode()
        with urllib.request.urlopen(f"{server.address}/v2/models/m/infer", body, timeout=30) as reply:
            outputs = {o["name"]: o["data"] for o in json.load(reply)["outputs"]}
    np.testing.assert_allclose(
        np.reshape(outputs["probabilities"], (3, 2)), model.predict_proba(rows), rtol=1e-4, atol=1e-5
    )


def test_a_frame_of_numbers_gets_one_matrix(converted):
    frame = pd.DataFrame(RNG.normal(size=(60, 3)), columns=["a", "b", "c"])
    outcome, config, report = converted(LinearRegression().fit(frame, frame.a), frame)
    assert outcome.status == 0, outcome.err
    assert tensors(config.input) == [("X", "TYPE_FP32", [3])]
    assert report["source"]["feature_names"] == ["a", "b", "c"]


def test_columns_come_in_the_models_order_and_others_are_left_out_with_a_note(converted):
    frame = pd.DataFrame(RNG.normal(size=(60, 2)), columns=["a", "b"])
    model = LinearRegression().fit(frame, frame.a * 100 - frame.b)
    outcome, _, report = converted(model, frame[["b", "a"]].assign(target=1.0))
    assert outcome.status == 0, outcome.err
    assert any("left out: target" in n for n in report["notes"])


def selecting():
    frame = pd.DataFrame(RNG.normal(size=(60, 2)), columns=["a", "b"])
    columns = ColumnTransformer([("s", StandardScaler(), ["b"]), ("p", "passthrough", ["a"])])
    return make_pipeline(columns, LinearRegression()).fit(frame, frame.a * 5 - frame.b), frame


def test_a_model_that_selects_columns_gets_them_one_by_one(converted):
    outcome, config, _ = converted(*selecting())
    assert outcome.status == 0, outcome.err
    assert tensors(config.input) == [("a", "TYPE_FP32", [1]), ("b", "TYPE_FP32", [1])]


def test_the_recipe_can_ask_for_one_matrix_instead(converted, served, tmp_path):
    model, frame = selecting()
    outcome, config, _ = converted(model, frame, inputs=[{"name": "rows", "dims": [2]}])
    assert outcome.status == 0, outcome.err
    assert tensors(config.input) == [("rows", "TYPE_FP32", [2])]
    with served(tmp_path / "repository") as server:
        row = frame.iloc[:1].to_numpy()
        tensor = {"name": "rows", "datatype": "FP32", "shape": [1, 2], "data": row.ravel().tolist()}
        got = server.infer("m", tensor)["outputs"][0]["data"]
    np.testing.assert_allclose(got, model.predict(frame.iloc[:1]), rtol=1e-4, atol=1e-5)


def test_the_recipe_can_ask_for_columns_instead_of_a_matrix(converted):
    frame = pd.DataFrame(RNG.normal(size=(60, 2)), columns=["a", "b"])
    asked = [{"name": "a", "dtype": "FP64"}, {"name": "b", "dtype": "FP32"}]
    outcome, config, _ = converted(selecting()[0], frame, inputs=asked)
    assert outcome.status == 0, outcome.err
    assert tensors(config.input) == [("a", "TYPE_FP64", [1]), ("b", "TYPE_FP32", [1])]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([{"name": "a"}, {"name": "z"}], "neither one matrix nor the model's columns"),
        ([{"name": "X", "dims": [3]}], "write dims: [2]"),
    ],
)
def test_inputs_that_do_not_fit_a_frame_are_refused(converted, inputs, words):
    outcome, _, _ = converted(*selecting(), inputs=inputs)
    assert (outcome.status, "error[inputs-mismatch]" in outcome.err) == (3, True), outcome.err
    assert words in outcome.err


@pytest.mark.parametrize(
    ("frame", "file", "words"),
    [
        (FRAME.drop(columns="port"), "s.csv", "lack column port"),
        (FRAME.assign(port=1.5), "s.parquet", "trained on text (string objects) in column 'port'"),
        (
            FRAME.assign(age=pd.Timestamp("2026-01-01")),
            "s.parquet",
            "column 'age' holds values that no tensor",
        ),
        (FRAME.iloc[:0], "s.csv", "a header and no rows"),
    ],
)
def test_frames_that_do_not_fit_are_named(converted, frame, file, words):
    outcome, _, _ = converted(mixed(), frame, file)
    assert (outcome.status, "error[samples-unfit]" in outcome.err) == (3, True), outcome.err
    assert words in outcome.err


def test_text_with_missing_cells_is_served_as_the_empty_string(converted):
    frame = pd.DataFrame({"c": pd.Series(RNG.choice(["red", "blue"], 90), dtype=object), "w": RNG.random(90)})
    frame.loc[::7, "c"] = None
    encode = make_pipeline(SimpleImputer(strategy="most_frequent", missing_values=None), OneHotEncoder())
    columns = ColumnTransformer([("t", encode, ["c"]), ("n", "passthrough", ["w"])])
    frame["c"] = frame["c"].where(frame["c"].notna(), None)
    model = make_pipeline(columns, LinearRegression()).fit(frame, frame.w)
    outcome, _, report = converted(model, frame)
    if outcome.status == 0:
        assert any("empty string" in n for n in report["notes"])
    else:
        assert outcome.status in (3, 4, 5)
        assert "'c'" in outcome.err or "SimpleImputer" in outcome.err


def test_an_encoder_that_refuses_unseen_categories_is_told(converted):
    encoder = ColumnTransformer([("o", OneHotEncoder(), ["port"]), ("p", "passthrough", ["rooms"])])
    model = make_pipeline(encoder, LogisticRegression()).fit(FRAME[["port", "rooms"]], TARGET)
    outcome, _, report = converted(model, FRAME[["port", "rooms"]])
    assert outcome.status == 0, outcome.err
    edges = next(c for c in report["checks"] if c["name"] == "edge rows")["detail"]
    assert any("unseen category" in n for n in report["notes"]) or "refused by both" in edges


def test_an_encoder_with_a_code_for_unseen_categories_converts_equal(converted):
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-7)
    columns = ColumnTransformer([("o", encoder, ["port"]), ("p", "passthrough", ["rooms"])])
    model = make_pipeline(columns, LinearRegression()).fit(FRAME[["port", "rooms"]], TARGET)
    assert converted(model, FRAME[["port", "rooms"]])[0].status == 0


def test_texts_are_served_one_a_row(project, repobuild_cli, served, tmp_path):
    texts = np.array(["red fish", "blue fish", "one two", "red red two"] * 4)
    model = make_pipeline(CountVectorizer(token_pattern=r"[a-z]+"), LogisticRegression()).fit(
        texts, [0, 1, 0, 1] * 4
    )
    home = project(model, texts, name="m")
    outcome = repobuild_cli("convert", home, "-r", tmp_path / "repository", "--trust", "pickle")
    assert outcome.status == 0, outcome.err
    with served(tmp_path / "repository") as server:
        tensor = {"name": "text", "datatype": "BYTES", "shape": [2, 1], "data": ["red fish", "blue"]}
        outputs = {o["name"]: o["data"] for o in server.infer("m", tensor)["outputs"]}
    np.testing.assert_allclose(
        np.reshape(outputs["probabilities"], (2, 2)), model.predict_proba(["red fish", "blue"]), atol=1e-5
    )


def test_the_class_index_can_be_served_in_place_of_the_text(project, repobuild_cli, served, tmp_path):
    rows = RNG.normal(size=(90, 2))
    names = np.array(["low", "mid", "top"])[np.digitize(rows[:, 0], [-0.5, 0.5])]
    model = LogisticRegression().fit(rows, names)
    asked = [{"name": "label", "labels": "from-classes"}, {"name": "probabilities"}]
    home = project(model, rows, name="m", outputs=asked)
    outcome = repobuild_cli("convert", home, "-r", tmp_path / "repository", "--trust", "pickle")
    assert outcome.status == 0, outcome.err
    config = parse_config((tmp_path / "repository/m/config.pbtxt").read_text(), tmp_path)
    assert tensors(config.output)[0] == ("label", "TYPE_INT64", [1])
    assert config.output[0].label_filename == ""  # an element is named by its position, not by its value
    assert json.loads(config.parameters["classes:label"].string_value) == ["low", "mid", "top"]
    labels = (tmp_path / "repository/m" / config.output[1].label_filename).read_text()
    assert labels == "low\nmid\ntop\n"
    with served(tmp_path / "repository") as server:
        tensor = {"name": "X", "datatype": "FP32", "shape": [3, 2], "data": rows[:3].ravel().tolist()}
        outputs = {o["name"]: o["data"] for o in server.infer("m", tensor)["outputs"]}
    assert outputs["label"] == [model.classes_.tolist().index(n) for n in model.predict(rows[:3])]


def test_without_samples_rows_are_made_up_and_the_report_says_so(project, repobuild_cli, tmp_path):
    rows = RNG.normal(size=(60, 2)) * 5 + 100
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, rows[:, 0] > 100)
    home = project(model, rows, name="m")
    document = json.loads((home / "recipe.yaml").read_text())
    del document["samples"]
    (home / "recipe.yaml").write_text(json.dumps(document))
    report = tmp_path / "report.json"
    outcome = repobuild_cli("convert", home, "-r", tmp_path / "r", "--trust", "pickle", "--report", report)
    assert outcome.status == 0, outcome.err
    assert "rows were made up" in outcome.err
    assert json.loads(report.read_text())["samples"] == {"made_up": True, "rows": 128}


def test_config_text_of_odd_column_names_parses_back(converted):
    frame = pd.DataFrame({'a "quoted"': RNG.normal(size=60), "pfad\\name": RNG.choice(["x", "y"], 60)})
    columns = ColumnTransformer(
        [("n", "passthrough", ['a "quoted"']), ("c", OneHotEncoder(handle_unknown="ignore"), ["pfad\\name"])]
    )
    model = make_pipeline(columns, LinearRegression()).fit(frame, frame.iloc[:, 0])
    outcome, config, _ = converted(model, frame)
    assert outcome.status == 0, outcome.err
    assert [i.name for i in config.input] == ['a "quoted"', "pfad\\name"]
    assert text_format.MessageToString(config)


@pytest.mark.parametrize("name", [" ", "two\nlines", "\x1b[31mred"])
def test_a_column_whose_name_no_tensor_can_have_is_refused(converted, name):
    frame = pd.DataFrame({name: RNG.normal(size=30), "t": RNG.choice(["x", "y"], 30)})
    columns = ColumnTransformer([("n", "passthrough", [name]), ("c", OneHotEncoder(), ["t"])])
    model = make_pipeline(columns, LinearRegression()).fit(frame, frame.iloc[:, 0])
    outcome, _, _ = converted(model, frame, "samples.parquet")
    assert (outcome.status, "error[tensor-name]" in outcome.err) == (3, True), outcome.err
    assert "\x1b" not in outcome.err


@pytest.mark.parametrize("samples", [np.float32, np.float64])
@pytest.mark.parametrize("encoder", [OneHotEncoder, OrdinalEncoder])
def test_a_fraction_is_not_taken_for_the_whole_category_beside_it(encoder, samples, tmp_path):
    import onnxruntime

    import repobuild

    rows = np.random.default_rng(1).integers(0, 4, (60, 2)).astype(samples)
    unknown = {OneHotEncoder: {"handle_unknown": "ignore", "sparse_output": False}}.get(
        encoder, {"handle_unknown": "use_encoded_value", "unknown_value": -1}
    )
    model = encoder(**unknown).fit(rows)
    report = repobuild.convert(model, samples=rows, repository=tmp_path, name="m")
    assert report.notes == ()
    fresh = np.array([[1.7, 2], [-0.5, 3], [1e30, 1], [-1e30, 5]], dtype=samples)
    session = onnxruntime.InferenceSession(tmp_path / "m" / "1" / "model.onnx")
    wire = session.get_inputs()[0]
    typed = fresh.astype(np.float64 if "double" in wire.type else np.float32)
    [got] = session.run(None, {wire.name: typed})
    assert np.array_equal(got, model.transform(fresh))


def test_a_category_that_both_refuse_is_told_since_it_fails_its_whole_batch(converted):
    model = ColumnTransformer([("port", OneHotEncoder(), ["port"])]).fit(FRAME[["port"]])
    outcome, _, report = converted(model, FRAME[["port"]], "samples.parquet")
    assert outcome.status == 0
    [note] = [n for n in report["notes"] if "unseen category (handle_unknown) in port" in n]
    assert "fails every request that it is batched with" in note
