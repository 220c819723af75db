"""The batch axis and further free axes are found by what files say and by asking the model."""

import numpy as np
import pytest

from repobuild.errors import InputInvalid
from repobuild.recipe.types import Recipe, SourceRecipe
from repobuild.sources.interface import TensorArgument
from repobuild.tensor_models.axes import find_axes
from repobuild.tensor_models.feed import TensorFeed
from repobuild.tensor_models.requests import resized


def recipe(**dynamic_axes):
    axes = {n: {str(k): v for k, v in found.items()} for n, found in dynamic_axes.items()}
    return Recipe(
        "m", SourceRecipe("m.pt", "m.pt"), None, "s.npz", export={"dynamic_axes": axes} if axes else {}
    )


def asker(model):
    def ask(requests):
        found = []
        for request in requests:
            try:
                found.append(model(**request))
            except (ValueError, IndexError) as problem:
                found.append(str(problem))
        return found

    return ask


def argument(name, array, shape=None, bounds=None):
    dims = tuple([None] * array.ndim if shape is None else shape)
    return TensorArgument(name, name, None, dims, bounds or {})


def find(model, arrays, said=None, shapes=None, bounds=None, want=8):
    arguments = [argument(n, a, (shapes or {}).get(n), (bounds or {}).get(n)) for n, a in arrays.items()]
    return find_axes(said or recipe(), arguments, arrays, asker(model), want)


def array(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def labels(found):
    return found.feed.free()


def test_rows_on_the_first_axis_are_the_batch():
    found = find(lambda x: {"y": x * 2}, {"x": array(3, 4)})
    assert labels(found) == {"x": {0: "batch"}}
    assert found.feed.rows_first
    assert found.sizes == {"batch": (1, 8)}
    assert found.notes == ()


def test_the_batch_of_a_state_is_found_on_its_second_axis():
    def lstm(x, h):
        if x.shape[0] != h.shape[1]:
            raise ValueError("batch sizes differ")
        if h.shape[0] != 2:
            raise ValueError("two layers")
        return {"y": x}

    found = find(lstm, {"x": array(2, 5, 3), "h": array(2, 2, 4)})
    assert labels(found) == {"x": {0: "batch"}, "h": {1: "batch"}}
    assert not found.feed.rows_first
    assert "another axis than the first in h" in found.notes[0]


def test_an_input_without_rows_leaves_triton_without_batches():
    def shift(x, weights):
        if weights.shape != (4,):
            raise ValueError("four weights")
        return {"y": x * weights}

    found = find(shift, {"x": array(4, 4), "weights": array(4)})
    assert labels(found) == {"x": {0: "batch"}, "weights": {}}
    assert "no axis of weights holds the batch" in found.notes[0]


def test_a_model_that_takes_one_size_only_has_no_batch():
    def fixed(x):
        if x.shape != (2, 3):
            raise ValueError("two rows")
        return {"y": x}

    found = find(fixed, {"x": array(2, 3)})
    assert found.feed.batch is None
    assert labels(found) == {"x": {}}
    [note] = found.notes
    assert "the model itself fails at other batch sizes; at 1 in place of 2 on axis 0 of 'x'" in note
    assert "it says: two rows (and at every other place that was tried, 1)" in note


def test_an_index_out_of_range_at_other_sizes_is_told_with_its_places():
    """Edges name nodes by number, so that one graph with fewer nodes is no other batch of it."""

    def scatter(nodes, edges):
        if nodes.shape[1] != 5:
            raise ValueError("five features")
        return {"y": nodes[edges[0]] + nodes[edges[1]]}

    nodes, edges = array(4, 5), np.array([[3, 0, 1], [1, 2, 3]])
    found = find(scatter, {"nodes": nodes, "edges": edges}, recipe(nodes={0: "nodes"}, edges={1: "edges"}))
    assert found.feed.batch is None
    assert found.notes[0] == (
        "no batch dimension: the model itself fails at other batch sizes; at 1 in place of 2 on axis 0 of"
        " 'edges' it says: index 1 is out of bounds for axis 0 with size 1 (and at every other place that was"
        " tried, 2)"
    )


def test_an_axis_that_a_file_calls_free_and_the_model_does_not_take_is_told_with_the_error():
    def fixed(x):
        if x.shape[1] != 3:
            raise ValueError("three columns")
        return {"y": x}

    found = find(fixed, {"x": array(2, 3)}, shapes={"x": ("batch", "width")})
    assert labels(found) == {"x": {0: "batch"}}
    assert "is served as fixed (at size 4 of axis 1 of 'x' the model says: three columns)" in found.notes[0]


def test_axes_that_the_recipe_frees_are_tried_at_other_sizes():
    def net(image):
        if image.shape[2] % 4 or image.shape[3] % 4:
            raise ValueError("sides must be multiples of 4")
        return {"y": image}

    said = recipe(image={0: "batch", 2: "height", 3: "width"})
    found = find(net, {"image": array(2, 1, 8, 12)}, said)
    assert labels(found) == {"image": {0: "batch", 2: "height", 3: "width"}}
    assert found.sizes == {"batch": (1, 8), "height": (4, 16), "width": (8, 24)}


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (recipe(x={5: "t"}), "axis-unknown", "no axis 5"),
        (recipe(x={1: "t"}, y={1: "t"}), "axis-sizes", "different sizes"),
        (recipe(x={1: "t"}), "axis-fixed", "no other size of it than 3"),
    ],
)
def test_axes_that_cannot_be_freed_are_refused(said, code, words):
    def net(x, y):
        if x.shape[1] != 3 or y.shape[1] != 4:
            raise ValueError("widths are fixed")
        return {"z": x}

    with pytest.raises(InputInvalid) as caught:
        find(net, {"x": array(2, 3), "y": array(2, 4)}, said)
    assert caught.value.code == code
    assert words in caught.value.message


def test_an_axis_that_the_file_fixes_is_not_freed():
    with pytest.raises(InputInvalid) as caught:
        find(lambda x: {"y": x}, {"x": array(2, 3)}, recipe(x={1: "t"}), {"x": ["N", 3]})
    assert caught.value.code == "axis-fixed"
    assert "fixed to 3" in caught.value.message


def test_names_of_the_file_are_kept_and_a_free_axis_that_takes_no_other_size_is_served_as_fixed():
    def net(x, target):
        if target.shape != (3,):
            raise ValueError("rank")
        return {"y": x}

    found = find(net, {"x": array(4, 6), "target": array(3)}, None, {"x": ["N", 6], "target": ["rank"]})
    assert labels(found) == {"x": {0: "N"}, "target": {}}
    assert "the axis 'rank' is free" in found.notes[-1]


def test_a_size_that_gives_an_answer_other_axes_is_not_taken():
    def net(x, target):
        return {"y": x.reshape(tuple(int(d) for d in target))}

    arrays = {"x": array(4, 6), "target": np.array([-1, 2, 3])}
    found = find(net, arrays, None, {"x": ["N", 6], "target": ["rank"]})
    assert labels(found) == {"x": {0: "N"}, "target": {}}


def test_bounds_of_the_file_hold():
    found = find(
        lambda x: {"y": x}, {"x": array(4, 6)}, None, {"x": ["s0", 6]}, {"x": {"s0": (2, 5)}}, want=32
    )
    assert found.bounds == (2, 5)
    assert all(2 <= s <= 5 for s in found.sizes.get("s0", ()))


def test_other_sizes_repeat_the_values_so_that_no_two_rows_are_equal():
    start = {"x": array(2, 3)}
    axes = {"x": {0: "batch"}}
    grown = resized(start, axes, "batch", 6)["x"]
    assert grown.shape == (6, 3)
    assert len(np.unique(grown, axis=0)) == 6
    assert set(grown.ravel()) == set(start["x"].ravel())
    assert np.array_equal(resized(start, axes, "batch", 1)["x"], start["x"][:1])


def test_a_feed_without_own_axes_gets_one_on_the_wire():
    found = find(lambda ids: {"y": ids}, {"ids": array(3)})
    feed: TensorFeed = found.feed
    assert [s.shape for s in feed.specs(batched=True)] == [(None, 1)]
    assert feed.to_wire({"ids": array(3)}, batched=True)["ids"].shape == (3, 1)
    assert [s.shape for s in feed.specs(batched=False)] == [(None,)]
