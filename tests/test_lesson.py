"""The lesson that the project was made for, with the lesson's own client."""

import concurrent.futures

import numpy as np
import pytest
import requests

ROW = {"name": "INPUT0", "shape": [1, 2], "datatype": "FP32", "data": [6.0, 5.0]}


@pytest.fixture
def lesson(risk_project, repobuild_cli, served, tmp_path):
    """The lesson's model, converted and served."""
    outcome = repobuild_cli("convert", risk_project, "-r", tmp_path / "repository", "--trust", "pickle")
    assert outcome.status == 0, outcome.err
    with served(tmp_path / "repository") as server:
        yield server


def test_the_client_of_the_lesson(lesson):
    assert requests.get(f"{lesson.address}/v2/health/ready", timeout=10).status_code == 200
    reply = requests.post(f"{lesson.address}/v2/models/risk_model/infer", json={"inputs": [ROW]}, timeout=10)
    assert reply.status_code == 200
    [output] = reply.json()["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("OUTPUT0", "FP32", [1, 1])
    assert abs(output["data"][0] - 0.9253) < 5e-5


def test_three_rows_answer_three(lesson):
    rows = [[6.0, 5.0], [1.0, 2.0], [9.0, 9.0]]
    tensor = {**ROW, "shape": [3, 2], "data": np.ravel(rows).tolist()}
    [together] = lesson.infer("risk_model", tensor)["outputs"]
    assert together["shape"] == [3, 1]
    for row, answer in zip(rows, together["data"], strict=True):
        [alone] = lesson.infer("risk_model", {**ROW, "data": row})["outputs"]
        assert alone["data"] == [pytest.approx(answer, abs=1e-6)]


def test_concurrent_rows_form_batches_and_each_answer_is_the_one_alone(lesson):
    rows = np.random.default_rng(1).uniform(0, 10, (64, 2)).tolist()
    alone = [lesson.infer("risk_model", {**ROW, "data": row})["outputs"][0]["data"] for row in rows]
    before = lesson.statistics("risk_model")
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        asked = pool.map(lambda row: lesson.infer("risk_model", {**ROW, "data": row}), rows)
        together = [document["outputs"][0]["data"] for document in asked]
    after = lesson.statistics("risk_model")
    assert after["inference_count"] - before["inference_count"] == 64
    assert after["execution_count"] - before["execution_count"] < 64
    for one, other in zip(together, alone, strict=True):
        assert one == pytest.approx(other, abs=1e-6)
