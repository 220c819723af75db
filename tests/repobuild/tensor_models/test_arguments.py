"""Sample arrays feed arguments of forward by name, never by position."""

import inspect

import pytest

from repobuild.errors import InputInvalid
from repobuild.worker.torch_signature import Given, match_arguments


def given(*arrays, named=True, **options):
    columns = [{"name": a, "shape": [2, 3]} for a in arrays]
    return Given({"named": named, "columns": columns}, options)


def wants_input(input):  # noqa: A002 - what PyTorch's own modules call it
    del input


def parameters(function):
    return list(inspect.signature(function).parameters.values())


def match(function, said):
    calling = match_arguments(parameters(function), said, "Net")
    return calling, {a.name: a.sample for a in calling.arguments}


def test_arrays_go_to_the_arguments_of_their_names_in_the_order_of_forward():
    calling, fed = match(lambda x, mask=None, scale=None: None, given("scale", "x"))
    assert fed == {"x": "x", "scale": "scale"}
    assert calling.names == ("x", "scale")
    assert calling.call(lambda **named: named, {"x": 1, "scale": 2}) == {"x": 1, "scale": 2}


def test_a_lone_array_feeds_the_only_argument_whatever_its_name():
    calling, fed = match(wants_input, given("x"))
    assert fed == {"input": "x"}
    assert "'x' feeds the only argument of forward, 'input'" in calling.notes[0]
    assert match(wants_input, given("samples", named=False))[0].notes == ()


def test_a_lone_array_never_feeds_one_of_several_arguments():
    with pytest.raises(InputInvalid) as caught:
        match(lambda a, b: None, given("x"))
    told = [e.text for e in caught.value.evidence]
    assert told[:2] == ["no array for the arguments a, b", "no argument for the arrays x"]


@pytest.mark.parametrize(
    ("function", "arrays", "words"),
    [
        (lambda x, y: None, ["x"], "no array for the arguments y"),
        (lambda x, y=None: None, ["x", "z"], "no argument for the arrays z"),
        (lambda x, y: None, [], "no array for the arguments x, y"),
    ],
    ids=["missing", "unknown", "nothing"],
)
def test_what_does_not_match_is_named(function, arrays, words):
    with pytest.raises(InputInvalid) as caught:
        match(function, given(*arrays))
    assert caught.value.code == "samples-unfit"
    assert caught.value.evidence[0].text == words


def test_constants_fix_arguments():
    calling, fed = match(lambda x, temperature, log=False: None, given("x", constants={"temperature": 2.5}))
    assert fed == {"x": "x"}
    assert calling.call(lambda **named: named, {"x": 1}) == {"x": 1, "temperature": 2.5}


@pytest.mark.parametrize(
    ("arrays", "constants", "words"),
    [(["x"], {"heat": 1}, "no argument 'heat'"), (["x"], {"x": 1}, "a constant and an array")],
)
def test_constants_that_fix_nothing_or_an_input_are_refused(arrays, constants, words):
    with pytest.raises(InputInvalid, match=words):
        match(lambda x, t=1: None, given(*arrays, constants=constants))


def test_one_dict_takes_all_arrays():
    calling, fed = match(lambda batch, flag=True: None, given("ids", "mask", dict_argument="batch"))
    assert fed == {"ids": "ids", "mask": "mask"}
    assert calling.call(lambda batch: batch, {"ids": 1, "mask": 2}) == {"ids": 1, "mask": 2}
    with pytest.raises(InputInvalid, match="no argument 'features'"):
        match(lambda batch: None, given("ids", dict_argument="features"))


def test_keyword_and_positional_catch_alls():
    assert match(lambda **named: None, given("a", "b"))[1] == {"a": "a", "b": "b"}
    calling, fed = match(lambda *row: None, given("a", "b"))
    assert fed == {"a": "a", "b": "b"}
    assert calling.call(lambda *row: row, {"a": 1, "b": 2}) == (1, 2)


def test_positional_only_arguments_are_passed_by_position():
    def forward(x, /, y):
        return x, y

    calling, _ = match(forward, given("x", "y"))
    assert calling.call(forward, {"x": 1, "y": 2}) == (1, 2)


def test_types_that_triton_cannot_carry_are_sent_as_others():
    said = given("x", sample_dtype={"x": "bfloat16", "y": "float16", "z": "int32"})
    assert [said.wire_type(n) for n in "xyza"] == ["FP32", "FP16", "INT32", None]
