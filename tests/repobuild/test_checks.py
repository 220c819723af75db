"""The checks find what they are for: each is shown failing."""

import numpy as np

from repobuild.checks import ask_model, check_artifact, spread
from repobuild.outputs import Wanted
from repobuild.recipe.types import Bounds, Tolerance
from repobuild.report import Fail, Pass, Skip
from repobuild.selection import Selection
from repobuild.tensors import DType, Signature, TensorSpec

WIRE = {"X": np.arange(12, dtype=np.float32).reshape(6, 2)}
SIGNATURE = Signature(
    (TensorSpec("X", DType.FP32, (None, 2)),), (TensorSpec("y", DType.FP32, (None, 1)),), batched=True
)
WANTED = (Wanted("y", Selection("y")),)


class Model:
    """A source or runner that computes with a function of the matrix."""

    def __init__(self, function):
        self.function = function

    def predict(self, batch, *, one_by_one=False, answers=None):
        matrix = batch["X"]
        if one_by_one:
            return {"y": np.concatenate([self.function(matrix[i : i + 1]) for i in range(len(matrix))])}
        return {"y": self.function(matrix)}

    def run(self, batch):
        return {"y": self.function(batch["X"])}


def total(matrix):
    return matrix.sum(axis=1, keepdims=True)


def verdicts(source, artifact, signature=SIGNATURE, tolerance=Tolerance()):
    reference = ask_model(Model(source), WIRE, WANTED)
    checks = check_artifact(Model(artifact), WIRE, reference, signature, tolerance)
    return {c.name: c.verdict for c in checks}


def test_an_equal_artifact_passes_everything():
    assert all(isinstance(v, Pass) for v in verdicts(total, total).values())


def test_a_deviation_fails_with_its_row():
    def off(matrix):
        answer = total(matrix).astype(np.float64)
        answer[answer > 15] += 1
        return answer

    verdict = verdicts(total, off)["equal: y"]
    assert isinstance(verdict, Fail)
    assert "4 of 6" in verdict.detail
    assert "row 4" in verdict.detail


def test_a_stated_tolerance_lets_a_deviation_pass():
    def off(matrix):
        return total(matrix) + 0.5

    assert isinstance(verdicts(total, off)["equal: y"], Fail)
    loose = Tolerance(by_output={"y": Bounds(1.0, 0.0)})
    assert isinstance(verdicts(total, off, tolerance=loose)["equal: y"], Pass)


def test_a_random_artifact_is_found():
    chance = np.random.default_rng(0)

    def random(matrix):
        return total(matrix) + chance.random() * 1e-7

    assert isinstance(verdicts(lambda m: total(m).astype(float), random)["artifact repeats itself"], Fail)


def test_a_random_model_is_found():
    chance = np.random.default_rng(0)

    def random(matrix):
        return total(matrix) + chance.random()

    assert isinstance(verdicts(random, total)["model repeats itself"], Fail)


def test_an_artifact_that_mixes_rows_is_found():
    def mixing(matrix):
        return total(matrix) + (0 if len(matrix) == len(WIRE["X"]) else 1)

    assert isinstance(verdicts(total, mixing)["batch invariance"], Fail)


def test_without_a_batch_dimension_invariance_is_skipped_with_a_reason():
    whole = Signature(SIGNATURE.inputs, SIGNATURE.outputs, batched=False)
    verdict = verdicts(total, total, whole)["batch invariance"]
    assert isinstance(verdict, Skip)
    assert verdict.reason


def test_a_model_whose_answer_depends_on_the_other_rows_is_told():
    def centred(matrix):
        return total(matrix) - total(matrix).mean()

    dependent = ask_model(Model(centred), WIRE, WANTED)
    assert dependent.rows_independent(Tolerance()) is not None
    assert ask_model(Model(total), WIRE, WANTED).rows_independent(Tolerance()) is None


def test_a_random_model_is_not_said_to_depend_on_the_other_rows():
    chance = np.random.default_rng(0)
    reference = ask_model(Model(lambda matrix: total(matrix) + chance.random()), WIRE, WANTED)
    assert reference.rows_independent(Tolerance()) is None


def test_spread_takes_the_ends_and_keeps_order():
    assert spread(3, 64) == (0, 1, 2)
    chosen = spread(1000, 64)
    assert len(chosen) == 64
    assert (chosen[0], chosen[-1]) == (0, 999)
    assert list(chosen) == sorted(chosen)
