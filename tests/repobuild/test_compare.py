"""Comparison of answers: numbers within bounds, everything else exactly."""

import numpy as np
import pytest

from repobuild.compare import as_rows, compare, magnitude
from repobuild.recipe.types import EXACT, Bounds, Tolerance

LOOSE = Bounds(1e-5, 1e-4)


def test_equal_arrays_have_no_deviation():
    outcome = compare("o", np.ones((3, 2)), np.ones((3, 2)), LOOSE)
    assert outcome.holds
    assert outcome.worst is None
    assert outcome.total == 6


def test_the_worst_element_is_named_with_row_and_index():
    want = np.array([[1.0, 2.0], [3.0, 4.0]])
    got = want + np.array([[0, 1e-6], [0.5, 0]])
    outcome = compare("o", got, want, LOOSE)
    assert not outcome.holds
    assert outcome.wrong == 1
    assert (outcome.worst.row, outcome.worst.at) == (1, (0,))
    assert outcome.worst.absolute == pytest.approx(0.5)
    assert outcome.worst.relative == pytest.approx(0.5 / 3)
    assert str(outcome.worst).startswith("output 'o', row 1[0]: got 3.5, the model says 3")


def test_a_wrong_small_element_is_shown_before_a_right_large_one():
    want = np.array([1e6, 1e-6])
    got = want + np.array([50.0, 1e-3])
    outcome = compare("o", got, want, Bounds(1e-5, 1e-4))
    assert outcome.wrong == 1
    assert outcome.worst.row == 1


@pytest.mark.parametrize(
    ("got", "want", "holds"),
    [
        (np.nan, np.nan, True),
        (np.inf, np.inf, True),
        (-np.inf, np.inf, False),
        (np.nan, 1.0, False),
        (1.0, np.nan, False),
        (np.inf, 1e30, False),
        (1e30, np.inf, False),
        (0.0, -0.0, True),
        (1.0 + 1e-5, 1.0, True),
        (1.0 + 2e-4, 1.0, False),
    ],
)
def test_nan_and_infinities_are_compared_as_such(got, want, holds):
    assert compare("o", np.array([got]), np.array([want]), LOOSE).holds is holds


@pytest.mark.parametrize(
    ("got", "want", "holds"),
    [
        (np.array(["a", "b"]), np.array(["a", "b"], dtype=object), True),
        (np.array(["a", "b"]), np.array(["a", "c"]), False),
        (np.array([1, 2]), np.array(["1", "2"]), False),
        (np.array([1, 2], np.int32), np.array([1, 2], np.int64), True),
        (np.array([1, 2]), np.array([1, 3]), False),
        (np.array([True, False]), np.array([1, 0]), True),
        (np.array([2**53 + 1]), np.array([2**53]), False),
        (np.array([1, 2]), np.array([1.0, 2.0]), True),
        (np.array([90210]), np.array([90211.0]), False),
        (np.array([1]), np.array([1.5]), False),
    ],
)
def test_labels_must_be_equal_whatever_the_bounds(got, want, holds):
    assert compare("o", got, want, Bounds(10, 10) if got.dtype.kind != "f" else EXACT).holds is holds


def test_shapes_must_be_equal_but_for_a_missing_last_axis():
    assert compare("o", np.ones(3), np.ones((3, 1)), EXACT).holds
    outcome = compare("o", np.ones((3, 2)), np.ones((3, 3)), EXACT)
    assert not outcome.holds
    assert "shape [3, 2]" in outcome.why


def test_no_rows_are_equal():
    assert compare("o", np.ones((0, 2)), np.ones((0, 2)), EXACT).holds


def test_as_rows_leaves_matrices_alone():
    assert as_rows(np.ones(4)).shape == (4, 1)
    assert as_rows(np.ones((4, 2))).shape == (4, 2)


def test_some_outputs_may_be_held_to_equality():
    tolerance = Tolerance(Bounds(1.0, 1.0), {"a": Bounds(2.0, 2.0)}).with_exact(["a"])
    assert tolerance.of("a") == EXACT
    assert tolerance.of("b") == Bounds(1.0, 1.0)
    assert not compare("a", np.array([90210.0]), np.array([90211.0]), tolerance.of("a")).holds


def test_bounds_in_proportion_grow_with_the_answers_from_a_size_on():
    bounds = Bounds(0.1, 0).in_proportion(10.0)
    assert compare("o", np.array([80.5]), np.array([80.0]), bounds).holds
    assert not compare("o", np.array([80.9]), np.array([80.0]), bounds).holds
    assert not compare("o", np.array([5.2]), np.array([5.0]), bounds).holds


@pytest.mark.parametrize("bounds", [EXACT, Bounds(20.0, 0), Bounds(0.1, 0, scaled=True)], ids=str)
def test_equality_and_bounds_as_large_as_the_answers_have_no_proportion(bounds):
    assert bounds.in_proportion(10.0) == bounds


def test_the_magnitude_of_an_answer_is_that_of_its_finite_numbers():
    assert magnitude(np.array([1.0, -4.0, np.inf, np.nan])) == 4.0
    assert magnitude(np.array([7])) == magnitude(np.ones((0, 2))) == magnitude(np.array(["a"])) == 0.0
