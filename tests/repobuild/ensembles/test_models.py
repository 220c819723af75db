"""Models as steps: ONNX files and estimators, joined to python steps and to each other."""

import json

import numpy as np
import pytest

from repobuild.emit.config import read_config

MAKE_ROWS = """
    import numpy as np

    def run(inputs):
        lines = [item.decode().split(",") for item in inputs["CSV"].ravel()]
        return {"rows": np.array([[float(v) for v in line] for line in lines], dtype=np.float32)}
"""
PICK = """
    import numpy as np

    def run(inputs):
        best = inputs["scores"].argmax(axis=1)
        return {"best": best[:, None].astype(np.int64)}
"""
LINES = ["1,2", "-3,0.5", "0,0", "4,4", "2,-7", "0.25,1"]


def onnx_model(path, weights, *, batch="batch", name="scores", dtype=np.float32):
    """A matrix product, with a free batch axis unless told otherwise."""
    from onnx import TensorProto, helper, numpy_helper, save

    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weights = np.asarray(weights, dtype=dtype)
    node = helper.make_node("MatMul", ["rows", "w"], [name])
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("rows", kind, [batch, weights.shape[0]])],
        [helper.make_tensor_value_info(name, kind, [batch, weights.shape[1]])],
        [numpy_helper.from_array(weights, "w")],
    )
    assert kind != TensorProto.UNDEFINED
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture
def chain(toy):
    """CSV text to numbers, an ONNX model, and the best of its scores."""
    toy.write("make_rows.py", MAKE_ROWS)
    toy.write("pick.py", PICK)
    onnx_model(toy.home / "m.onnx", [[1, -1, 0.5], [0.5, 2, -1]])
    (toy.home / "m.yaml").write_text(json.dumps({"name": "m", "source": {"path": "m.onnx"}}))
    toy.samples(CSV=LINES)
    toy.recipe["ensemble"]["steps"] = [
        {
            "name": "rows",
            "python": {
                "file": "make_rows.py",
                "inputs": [{"name": "CSV", "dtype": "BYTES", "dims": [1]}],
                "outputs": [{"name": "rows", "dtype": "FP32", "dims": [2]}],
            },
        },
        {
            "name": "model",
            "recipe": "m.yaml",
            "input_map": {"rows": "rows"},
            "output_map": {"scores": "raw"},
        },
        {
            "name": "pick",
            "python": {
                "file": "pick.py",
                "inputs": [{"name": "scores", "dtype": "FP32", "dims": [3]}],
                "outputs": [{"name": "best", "dtype": "INT64", "dims": [1]}],
            },
            "input_map": {"scores": "raw"},
        },
    ]
    return toy


def test_a_model_between_python_steps(chain, served):
    chain.recipe["ensemble"]["outputs"] = ["best", "raw"]
    chain.built()
    assert chain.versions() == {n: [1] for n in ("toy", "toy_model", "toy_pick", "toy_rows")}
    config = read_config(chain.repository / "toy_model")[1]
    assert (config.backend, config.max_batch_size) == ("onnxruntime", 4)
    assert list(config.version_policy.specific.versions) == [1]
    assert len(config.model_warmup) == 2
    with served(chain.repository) as server:
        rows = {"name": "CSV", "shape": [2, 1], "datatype": "BYTES", "data": ["1,2", "2,-7"]}
        best, raw = server.infer("toy", rows)["outputs"]
    assert best["data"] == [1, 2]
    assert raw["data"] == [2.0, 3.0, -1.5, -1.5, -16.0, 8.0]


def test_a_changed_model_is_a_version_of_that_step_alone(chain):
    chain.built()
    onnx_model(chain.home / "m.onnx", [[1, -1, 0.5], [0.5, 3, -1]])
    chain.built()
    assert chain.versions() == {"toy": [1, 2], "toy_model": [1, 2], "toy_pick": [1], "toy_rows": [1]}
    assert list(read_config(chain.repository / "toy_model")[1].version_policy.specific.versions) == [2]


def test_a_model_alone_needs_no_trust_and_validate_serves_it(chain, repobuild_cli):
    chain.recipe["ensemble"]["steps"] = [chain.steps[1]]
    chain.samples(rows=np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32))
    outcome = chain.run("convert", "-r", chain.repository, "--progress", "quiet")
    assert outcome.status == 0, outcome.err
    validated = repobuild_cli("validate", chain.repository)
    assert validated.status == 0, validated.err
    assert "carries code" not in validated.out
    answers = [line for line in validated.out.splitlines() if line.startswith("toy/1") and "answers" in line]
    assert any("batches of 4" in line and "pass" in line for line in answers), validated.out
    onnx_model(chain.home / "m.onnx", [[2, -1, 0.5], [0.5, 3, -1]])
    assert chain.run("convert", "-r", chain.repository, "--progress", "quiet").status == 0
    assert repobuild_cli("validate", chain.repository).status == 0


def test_an_estimator_as_a_step(chain):
    import joblib
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 2))
    classes = (rows @ [1, -1] > 0).astype(int) + (rows[:, 0] > 0.5)
    joblib.dump(LogisticRegression().fit(rows, classes), chain.home / "m.joblib")
    recipe = {
        "name": "m",
        "source": {"path": "m.joblib"},
        "inputs": [{"name": "X", "dtype": "FP32", "dims": [2]}],
        "outputs": [{"name": "scores", "from": "probabilities"}],
    }
    (chain.home / "m.yaml").write_text(json.dumps(recipe))
    chain.steps[1]["input_map"] = {"X": "rows"}
    error = chain.refused("source-untrusted")
    assert "step 'model'" in error
    chain.built("--trust", "pickle")
    assert "toy_model" in chain.versions()


def test_names_that_the_model_has_not(chain):
    chain.steps[1]["output_map"] = {"logits": "raw"}
    error = chain.refused("step-unjoined")
    assert "step 'model'" in error
    assert "it answers with scores" in error
    chain.steps[1].update(input_map={"X": "rows"}, output_map={"scores": "raw"})
    chain.build()
    onnx_model(chain.home / "m.onnx", [[1, 2, 3], [4, 5, 6]])


def test_a_model_of_another_type(chain):
    onnx_model(chain.home / "m.onnx", [[1, 2, 3], [4, 5, 6]], dtype=np.float64)
    outcome = chain.build()
    assert outcome.status == 3
    assert "step 'model'" in outcome.err
    assert not chain.repository.exists()


def test_a_model_of_other_dims(chain):
    onnx_model(chain.home / "m.onnx", [[1, 2, 3, 4], [4, 5, 6, 7]])
    error = chain.refused("step-mismatch")
    assert "step 'pick'" in error
    assert "axis 0 is 4, and 3 is taken" in error


def test_smaller_batches_than_the_whole(chain):
    recipe = {"name": "m", "source": {"path": "m.onnx"}, "serving": {"max_batch_size": 2}}
    (chain.home / "m.yaml").write_text(json.dumps(recipe))
    assert "max_batch_size 2, the ensemble's 4" in chain.refused("step-batch")


def test_a_model_whose_rows_depend_on_each_other(chain):
    from onnx import TensorProto, helper, save

    nodes = [
        helper.make_node("ReduceMean", ["rows"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["rows", "mean"], ["centred"]),
        helper.make_node("Concat", ["centred", "rows"], ["wide"], axis=1),
        helper.make_node("Slice", ["wide", "from", "to", "axis"], ["scores"]),
    ]
    values = {"from": [0], "to": [3], "axis": [1]}
    graph = helper.make_graph(
        nodes,
        "centre",
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor(n, TensorProto.INT64, [1], v) for n, v in values.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=8), chain.home / "m.onnx")
    error = chain.refused("step-batch")
    assert "step 'model'" in error
    assert "depends on the other rows" in error


def test_the_step_s_own_samples_are_for_building_it_alone(chain):
    np.savez(chain.home / "own.npz", rows=np.zeros((4, 2), dtype=np.float32))
    recipe = {"name": "m", "source": {"path": "m.onnx"}, "samples": "own.npz"}
    (chain.home / "m.yaml").write_text(json.dumps(recipe))
    chain.built()
    report = json.loads((chain.home / "models.repobuild/toy_model/1/report.json").read_text())
    assert any("checked on tensors of the ensemble" in note for note in report["notes"])
    assert report["samples"]["rows"] == len(LINES)


def test_models_joined_to_models(chain, served):
    onnx_model(chain.home / "n.onnx", np.eye(3) * 2, name="doubled")
    (chain.home / "n.yaml").write_text(json.dumps({"name": "n", "source": {"path": "n.onnx"}}))
    chain.recipe["ensemble"]["steps"] = [
        chain.steps[1],
        {
            "name": "double",
            "recipe": "n.yaml",
            "input_map": {"rows": "raw"},
            "output_map": {"doubled": "out"},
        },
    ]
    chain.samples(rows=np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32))
    chain.built()
    with served(chain.repository) as server:
        rows = {"name": "rows", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
        assert server.infer("toy", rows)["outputs"][0]["data"] == [4.0, 6.0, -3.0]
