"""Inference over JSON: values, shapes, ids, outputs, and what a client is told when something is wrong."""

from __future__ import annotations

import json
import math

import pytest

INTEGERS = {
    "INT8": 8,
    "INT16": 16,
    "INT32": 32,
    "INT64": 64,
    "UINT8": 8,
    "UINT16": 16,
    "UINT32": 32,
    "UINT64": 64,
}


def test_a_request_is_answered_in_tritons_form(server, tensor):
    response = server.infer("id_fp32", {"inputs": [tensor([[0.5, -2.0]])]})
    assert response.status == 200
    assert response.headers["Content-Type"] == "application/json"
    assert response.body == (
        b'{"model_name":"id_fp32","model_version":"1","outputs":[{"name":"OUT","datatype":"FP32",'
        b'"shape":[1,2],"data":[0.5,-2.0]}]}'
    )


def test_the_same_form_is_read_again_with_other_values(server, tensor):
    for index in range(5):
        response = server.infer("id_fp32", {"inputs": [tensor([[index, index + 0.5]])]})
        assert response.json["outputs"][0]["data"] == [index, index + 0.5]


def test_a_request_id_comes_back_and_may_hold_anything(server, tensor):
    for request_id in ("7", 'quote " and \\', "naïve ✓"):
        response = server.infer("id_fp32", {"id": request_id, "inputs": [tensor([[1, 2]])]})
        assert list(response.json) == ["id", "model_name", "model_version", "outputs"]
        assert response.json["id"] == request_id


def test_an_empty_id_is_not_echoed(server, tensor):
    response = server.infer("id_fp32", {"id": "", "inputs": [tensor([[1, 2]])]})
    assert "id" not in response.json


def test_data_may_be_nested_in_any_way(server, tensor):
    for data in ([1, 2, 3, 4], [[1, 2], [3, 4]], [[[1], [2]], [[3], [4]]], [1, [2, [3]], 4]):
        response = server.infer("id_fp32", {"inputs": [tensor(data, [2, 2])]})
        assert response.json["outputs"][0] == {
            "name": "OUT",
            "datatype": "FP32",
            "shape": [2, 2],
            "data": [1, 2, 3, 4],
        }


def test_members_of_an_input_may_stand_in_any_order(server):
    body = '{"inputs":[{"data":[[1,2]],"shape":[1,2],"datatype":"FP32","name":"IN"}]}'
    for _ in range(3):
        assert server.infer("id_fp32", body.encode()).json["outputs"][0]["data"] == [1, 2]


def test_a_body_like_one_met_before_but_without_its_shape_is_refused(server):
    whole = b'{"inputs":[{"name":"IN","datatype":"FP32","data":[1,2],"shape":[1,2]}]}'
    assert server.infer("id_fp32", whole).status == 200
    broken = b'{"inputs":[{"name":"IN","datatype":"FP32","data":[1,2]}]}'
    assert server.infer("id_fp32", broken).error == (
        "Unable to parse 'shape': attempt to access non-existing object member 'shape'"
    )


def test_unknown_members_are_ignored(server, tensor):
    body = {"extra": {"a": [1]}, "inputs": [{**tensor([[1, 2]]), "more": True}], "parameters": {"mine": 1.5}}
    assert server.infer("id_fp32", body).json["outputs"][0]["data"] == [1, 2]


@pytest.mark.parametrize("wire", INTEGERS)
def test_integers_are_exact_at_their_limits(server, tensor, wire):
    bits = INTEGERS[wire]
    low, high = (0, 2**bits - 1) if wire.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    response = server.infer(f"id_{wire.lower()}", {"inputs": [tensor([[low, high]], wire=wire)]})
    assert response.json["outputs"][0]["data"] == [low, high]


@pytest.mark.parametrize(
    ("wire", "given", "cut"),
    [("UINT8", 256, 0), ("INT8", 200, -56), ("INT32", 2**40, 0), ("UINT16", 65537, 1)],
)
def test_integers_that_are_too_large_are_cut(server, tensor, wire, given, cut):
    response = server.infer(f"id_{wire.lower()}", {"inputs": [tensor([[given, 1]], wire=wire)]})
    assert response.json["outputs"][0]["data"] == [cut, 1]


def test_booleans(server, tensor):
    response = server.infer("id_bool", {"inputs": [tensor([[True, False]], wire="BOOL")]})
    assert response.json["outputs"][0]["data"] == [True, False]


def test_floats_are_printed_as_the_shortest_text_of_their_double(server, tensor):
    response = server.infer("id_fp32", {"inputs": [tensor([[0.1, 7e10]])]})
    assert b'"data":[0.10000000149011612,70000001024.0]' in response.body
    response = server.infer("id_fp64", {"inputs": [tensor([[0.1, 1]], wire="FP64")]})
    assert b'"data":[0.1,1.0]' in response.body


def test_not_a_number_and_infinity_travel_both_ways(server):
    body = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[2,2],"data":[NaN,Infinity,-Infinity,1e300]}]}'
    response = server.infer("id_fp32", body)
    assert b'"data":[NaN,Infinity,-Infinity,Infinity]' in response.body
    assert math.isnan(json.loads(response.body)["outputs"][0]["data"][0])


def test_strings(server, tensor):
    texts = ["", "a", "ü ✓", 'quote " \\ \n']
    response = server.infer("strings", {"inputs": [tensor(texts, [4, 1], wire="BYTES")]})
    assert response.json["outputs"][0]["data"] == texts


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param(b'"\\ud800"', "The surrogate pair in string is invalid.", id="high surrogate"),
        pytest.param(b'"\\udc80"', "The surrogate pair in string is invalid.", id="low surrogate"),
        pytest.param(b'"a" x', "Missing a comma or ']' after an array element.", id="syntax"),
        pytest.param(b"1" * 5000, "", id="long number"),
    ],
)
def test_errors_beside_bytes_that_are_not_utf8(server, text, error):
    body = b'{"id":"\xff","inputs":[{"name":"IN","datatype":"BYTES","shape":[1,1],"data":[%b]}]}' % text
    for route in ("infer", "generate"):
        response = server.ask("POST", f"/v2/models/strings/{route}", body)
        assert response.status == 500
        assert response.error.startswith(f"failed to parse the request JSON buffer: {error}")


def test_a_model_without_batching_takes_whole_shapes(server, tensor):
    response = server.infer("whole", {"inputs": [tensor([[1, 2], [3, 4]])]})
    assert response.json["outputs"][0]["shape"] == [2, 2]
    assert response.json["outputs"][0]["data"] == [1, 2, 3, 4]


def test_tensors_without_elements(server, tensor):
    response = server.infer("open_whole", {"inputs": [tensor([], [0], wire="INT32")]})
    assert response.json["outputs"][0] == {"name": "OUT", "datatype": "INT32", "shape": [0], "data": []}


def test_variable_dims_are_answered_with_the_shape_that_was_asked(server, tensor):
    for width in (1, 3, 2):
        response = server.infer("variable", {"inputs": [tensor([[0.5] * width])]})
        assert response.json["outputs"][0]["shape"] == [1, width]


def test_scalars_of_a_batching_model_have_dims_1_on_the_wire(server, tensor):
    response = server.infer("scalar", {"inputs": [tensor([[1.5], [2.5]])]})
    assert response.json["outputs"][0]["shape"] == [2, 1]
    assert response.json["outputs"][0]["data"] == [1.5, 2.5]


def test_inputs_in_any_order_and_outputs_in_the_models_order(server, tensor):
    inputs = [tensor([[1, 2]], name="B"), tensor([[10, 20]], name="A")]
    response = server.infer("sum", {"inputs": inputs, "outputs": [{"name": "DIFFERENCE"}, {"name": "SUM"}]})
    assert [item["name"] for item in response.json["outputs"]] == ["SUM", "DIFFERENCE"]
    assert [item["data"] for item in response.json["outputs"]] == [[11, 22], [9, 18]]


def test_only_the_outputs_that_are_named_are_sent(server, tensor):
    inputs = [tensor([[1, 2]], name="A"), tensor([[10, 20]], name="B")]
    response = server.infer("sum", {"inputs": inputs, "outputs": [{"name": "DIFFERENCE"}]})
    assert [item["name"] for item in response.json["outputs"]] == ["DIFFERENCE"]
    response = server.infer("sum", {"inputs": inputs, "outputs": []})
    assert len(response.json["outputs"]) == 2


def test_a_version_may_be_named(server, tensor):
    for path, version in (("versions", "3"), ("versions/versions/1", "1"), ("versions/versions/3", "3")):
        assert server.infer(path, {"inputs": [tensor([[1, 2]])]}).json["model_version"] == version


def test_classification_gives_the_largest_values_with_their_labels(server, tensor):
    inputs = [tensor([[0.1, 0.7, 0.7, 0.9], [3, 2, 1, 0]])]
    outputs = [{"name": "OUT", "parameters": {"classification": 3}}]
    item = server.infer("classes", {"inputs": inputs, "outputs": outputs}).json["outputs"][0]
    assert item["datatype"] == "BYTES"
    assert item["shape"] == [2, 3]
    assert item["data"] == [
        "0.900000:3",
        "0.700000:1:one",
        "0.700000:2:two",
        "3.000000:0:zero",
        "2.000000:1:one",
        "1.000000:2:two",
    ]


UNTAGGED, TAGGED = "", "[request id: <id_unknown>] "
NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be "
    "prepended to "
    "each input shape. If you want to specify the full shape including the batch dim in your input dims "
    "config, "
    "try setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)
RESERVED = "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."
TOO_LARGE = (
    "failed to get model version from specified version string '99999999999999999999' (details: stol), "
    "version should be an integral value > 0"
)
GOOD = {"name": "IN", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
SOURCES = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
    "'shared_memory_region' in 'parameters'. But "
)


def without(key):
    return {name: value for name, value in GOOD.items() if name != key}


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b'{"inputs":', 500, "failed to parse the request JSON buffer: Invalid value. at 10"),
        (b"{a}", 500, "failed to parse the request JSON buffer: Missing a name for object member. at 1"),
        (b"   ", 500, "failed to parse the request JSON buffer: The document is empty. at 3"),
        ({}, 500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
        ([], 500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
        ({"inputs": 1}, 500, "Unable to parse 'inputs': attempt to access JSON non-array as array"),
        (
            {"inputs": [without("name")]},
            500,
            "Unable to parse 'name': attempt to access non-existing object member 'name'",
        ),
        (
            {"inputs": [{**GOOD, "shape": [1, -2]}]},
            500,
            "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            {"inputs": [{**GOOD, "shape": [1.0, 2]}]},
            500,
            "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            {"inputs": [{**GOOD, "data": 3}]},
            500,
            "Unable to parse 'data': attempt to access JSON non-array as array",
        ),
        (
            {"inputs": [{**GOOD, "data": ["1", 2]}]},
            500,
            "Unable to parse 'data': attempt to access JSON non-number as double",
        ),
        (
            {"inputs": [{**GOOD, "data": [None, 2]}]},
            500,
            "Unable to parse 'data': attempt to access JSON non-number as double",
        ),
        (
            {"inputs": [{**GOOD, "data": [True, 2]}]},
            500,
            "Unable to parse 'data': attempt to access JSON non-number as double",
        ),
        ({"inputs": [without("data")]}, 400, SOURCES + "no field is set"),
        (
            {"inputs": [{**GOOD, "parameters": {"binary_data_size": 8}}]},
            400,
            SOURCES + "set 'data' 'binary_data_size'",
        ),
        ({"inputs": [{**GOOD, "datatype": "fp32"}]}, 400, "invalid datatype for input IN"),
        ({"inputs": [{**GOOD, "datatype": "STRING"}]}, 400, "invalid datatype for input IN"),
        (
            {"inputs": [{**GOOD, "datatype": "INT32"}]},
            400,
            TAGGED + "inference input 'IN' data-type is 'INT32', but model 'id_fp32' expects 'FP32'",
        ),
        (
            {"inputs": []},
            400,
            TAGGED
            + "expected 1 inputs but got 0 inputs for model 'id_fp32'. Got input(s) [], but missing required "
            "input(s) ['IN']. Please provide all required input(s).",
        ),
        (
            {"inputs": [GOOD, {**GOOD, "name": "X"}]},
            400,
            TAGGED
            + "expected 1 inputs but got 2 inputs for model 'id_fp32'. Got input(s) ['IN','X'], but missing "
            "required input(s) ]. Please provide all required input(s).",
        ),
        ({"inputs": [{**GOOD, "name": "X"}]}, 400, "unexpected inference input 'X' for model 'id_fp32'"),
        ({"inputs": [GOOD, GOOD]}, 400, TAGGED + "input 'IN' already exists in request"),
        (
            {"inputs": [{**GOOD, "shape": [1, 3], "data": [1, 2, 3]}]},
            400,
            TAGGED
            + "unexpected shape for input 'IN' for model 'id_fp32'. Expected [-1,2], got [1,3]. "
            + NOTE,
        ),
        (
            {"inputs": [{**GOOD, "shape": [9, 2], "data": [0] * 18}]},
            400,
            TAGGED + "inference request batch-size must be <= 8 for 'id_fp32'",
        ),
        (
            {"inputs": [{**GOOD, "shape": [0, 2], "data": []}]},
            400,
            TAGGED + "input byte size mismatch for input 'IN' for model 'id_fp32'. Expected 8, got 0",
        ),
        (
            {"inputs": [{**GOOD, "data": [1]}]},
            500,
            "Failed to parse 'data' field: shape does not match true shape",
        ),
        (
            {"inputs": [{**GOOD, "data": [1, 2, 3]}]},
            500,
            "Unable to parse 'data': Shape does not match true shape of 'data' field",
        ),
        (
            {"inputs": [GOOD], "outputs": [{"name": "Z"}]},
            400,
            "unexpected inference output 'Z' for model 'id_fp32'",
        ),
        (
            {"inputs": [GOOD], "outputs": [{"name": "OUT"}, {"name": "OUT"}]},
            400,
            "output 'OUT' already exists in request",
        ),
        (
            {"inputs": [GOOD], "parameters": {"n": [1]}},
            400,
            "parameter 'n' has invalid type. It should be either 'int', 'bool', or 'string'.",
        ),
        (
            {"inputs": [GOOD], "parameters": {"triton_x": 1}},
            400,
            RESERVED,
        ),
        (
            {"inputs": [GOOD], "parameters": 1},
            500,
            "failed to get request params.: attempt to get members for non-object",
        ),
        (
            {"inputs": [GOOD], "parameters": {"binary_data_output": 1}},
            500,
            "Unable to parse 'binary_data_output': attempt to access JSON non-boolean as boolean",
        ),
        (
            {"inputs": [GOOD], "outputs": [{"name": "OUT", "parameters": {"classification": -1}}]},
            500,
            "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            {"inputs": [{**without("data"), "parameters": {"shared_memory_region": "r"}}]},
            404,
            "Unable to find shared memory region: 'r'",
        ),
        (
            {"id": 5, "inputs": [GOOD]},
            500,
            "Unable to parse 'id': attempt to access JSON non-string as string",
        ),
    ],
)
def test_what_a_wrong_request_is_told(server, body, status, text):
    for _ in range(2):
        response = server.infer("id_fp32", body)
        assert (response.status, response.error) == (status, text)
    assert server.infer("id_fp32", {"inputs": [GOOD]}).status == 200


def test_the_error_names_the_request_id(server):
    response = server.infer("id_fp32", {"id": "abc", "inputs": [{**GOOD, "datatype": "INT32"}]})
    assert response.error.startswith("[request id: abc] inference input 'IN' data-type")


@pytest.mark.parametrize(
    ("value", "want"),
    [(1.0, "signed-integer"), ("1", "signed-integer"), (True, "signed-integer"), (2**63, "signed-integer")],
)
def test_integers_take_integers_only(server, tensor, value, want):
    response = server.infer("id_int32", {"inputs": [tensor([value, 1], [1, 2], wire="INT32")]})
    assert response.error == f"Unable to parse 'data': attempt to access JSON non-{want} as {want}"


def test_half_floats_need_the_binary_format(server, tensor):
    response = server.infer("id_fp16", {"inputs": [tensor([[1, 2]], wire="FP16")]})
    assert response.status == 400
    assert response.error == (
        "receiving FP16 data via JSON is not supported. Please use the binary data format for input IN"
    )


def test_strings_are_counted(server, tensor):
    few = server.infer("strings", {"inputs": [tensor(["a"], [2, 1], wire="BYTES")]})
    assert (few.status, few.error) == (
        400,
        TAGGED + "expected 2 string elements for inference input 'IN' for model 'strings', got 1",
    )
    many = server.infer("strings", {"inputs": [tensor(["a", "b"], [1, 1], wire="BYTES")]})
    assert many.error == (
        TAGGED
        + "unexpected number of string elements 2 for inference input 'IN' for model 'strings', expecting 1"
    )


def test_batch_sizes_of_inputs_must_agree(server, tensor):
    inputs = [tensor([[1, 2]], name="A"), tensor([[1, 2], [3, 4]], name="B")]
    response = server.infer("sum", {"inputs": inputs})
    assert response.error == TAGGED + "input 'B' batch size does not match other inputs for 'sum'"


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("nope", 404, "Request for unknown model: 'nope' is not found"),
        ("id_fp32/versions/9", 404, "Request for unknown model: 'id_fp32' version 9 is not found"),
        (
            "id_fp32/versions/99999999999999999999",
            400,
            TOO_LARGE,
        ),
        ("id_fp32/versions/x", 404, "Not Found"),
    ],
)
def test_models_and_versions_that_are_not_there(server, path, status, text):
    response = server.infer(path, {"inputs": [GOOD]})
    assert (response.status, response.error) == (status, text)


@pytest.mark.parametrize("depth", [101, 5000, 200_000])
def test_deep_nesting_is_refused(server, depth):
    body = (
        b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,2],"data":'
        + b"[" * depth
        + b"]" * depth
        + b"}]}"
    )
    response = server.infer("id_fp32", body)
    assert response.status == 400
    assert "nesting depth" in response.error


def test_brackets_in_strings_are_no_nesting(server, tensor):
    text = "[" * 500 + '\\" {{'
    response = server.infer("strings", {"inputs": [tensor([text], [1, 1], wire="BYTES")]})
    assert response.json["outputs"][0]["data"] == [text]


def test_more_values_than_the_model_can_take_are_refused_before_they_are_read(server):
    body = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,2],"data":[%b]}]}' % b",".join(
        [b"[]"] * 600_000
    )
    response = server.infer("id_fp32", body)
    assert response.status == 400
    assert "values, which no batch of model 'id_fp32' has" in response.error
