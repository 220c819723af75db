"""The generate routes: one flat JSON object, or a stream of server-sent events."""

from __future__ import annotations

import json
import re
import socket
import time

import pytest
import requests

from tests.serve.conftest import read_all

NOT_ONE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates "
    "various number of responses"
)
UNKNOWN = "[request id: <id_unknown>] "


def ask(server, model, body, route="generate", headers=None):
    return server.ask("POST", f"/v2/models/{model}/{route}", body, headers)


def events(body):
    pieces = body.decode("utf-8", "surrogateescape").split("\n\n")
    assert pieces.pop() == ""
    assert all(piece.startswith("data: ") for piece in pieces)
    return [json.loads(piece.removeprefix("data: ")) for piece in pieces]


def generate_request(model, body, route="generate_stream", version=b"1.1"):
    head = b"POST /v2/models/%b/%b HTTP/%b\r\nContent-Length: %d\r\n\r\n"
    return head % (model.encode(), route.encode(), version, len(body)) + body


def unchunked(data):
    """The body that stands at the front of ``data`` in chunks, and what follows it."""
    body = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        piece, data = data[: int(size, 16)], data[int(size, 16) :]
        assert data.startswith(b"\r\n")
        body, data = body + piece, data[2:]
        if not piece:
            return body, data


# generate


def test_one_value(server):
    response = ask(server, "id_int32", {"IN": [1, 2]})
    assert response.status == 200
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Transfer-Encoding"] == "chunked"
    assert response.body == b'{"OUT":[1,2],"model_name":"id_int32","model_version":"1"}'


def test_a_single_element_is_no_list(server):
    response = ask(server, "echo", {"IN": 4, "id": "g"})
    assert response.body == b'{"OUT":4.0,"id":"g","model_name":"echo","model_version":"1"}'


def test_an_empty_id_is_none(server):
    assert ask(server, "echo", {"IN": 4, "id": ""}).json == {
        "OUT": 4.0,
        "model_name": "echo",
        "model_version": "1",
    }


def test_several_inputs_and_outputs(server):
    document = ask(server, "sum", {"B": [3, 4], "A": [1, 2]}).json
    assert list(document) == ["DIFFERENCE", "SUM", "model_name", "model_version"]
    assert document["SUM"] == [4, 6]
    assert document["DIFFERENCE"] == [-2, -2]


@pytest.mark.parametrize(
    ("model", "value", "answer"),
    [
        pytest.param("id_fp32", [1, 2, 3, 4], [1, 2, 3, 4], id="rows"),
        pytest.param("variable", [1, 2, 3], [1, 2, 3], id="innermost"),
        pytest.param("variable", 7, 7, id="scalar"),
        pytest.param("whole", [1, 2, 3, 4], [1, 2, 3, 4], id="whole"),
        pytest.param("open_whole", [5, 6, 7], [5, 6, 7], id="open-whole"),
        pytest.param("strings", "h\u00e9", "h\u00e9", id="text"),
        pytest.param("id_bytes", ["a", "b"], ["a", "b"], id="texts"),
        pytest.param("id_bool", [True, False], [True, False], id="bool"),
        pytest.param("id_uint8", [1, 256], [1, 0], id="cut"),
        pytest.param("open_whole", [], [], id="none"),
        pytest.param("id_int64", [[1], [2]], [1, 2], id="nested"),
    ],
)
def test_shapes_are_made_up(server, model, value, answer):
    assert ask(server, model, {"IN": value}).json["OUT"] == answer


@pytest.mark.parametrize("value", [[1, 2, 3], 1], ids=["three", "one"])
def test_what_fits_no_shape(server, value):
    response = ask(server, "id_fp32", {"IN": value})
    assert response.status == 400
    assert response.headers["Content-Type"] == "application/json"
    assert response.error == "The schema can not convert input 'IN' to tensor with proper shape"


@pytest.mark.parametrize("route", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        pytest.param(
            b"", 500, "failed to parse the request JSON buffer: The document is empty. at 0", id="no-body"
        ),
        pytest.param(b"{", 500, "failed to parse the request JSON buffer: Missing a name", id="syntax"),
        pytest.param(b"[1]", 500, "attempt to get members for non-object", id="array"),
        pytest.param(
            b'{"id":5,"IN":1}', 500, "Unable to parse 'id': attempt to access JSON non-string", id="id"
        ),
        pytest.param(
            b"{}", 400, UNKNOWN + "expected 1 inputs but got 0 inputs for model 'single'", id="missing"
        ),
        pytest.param(
            b'{"IN":"1"}',
            500,
            "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer",
            id="kind",
        ),
        pytest.param(
            b'{"IN":[[1,2],[3]]}',
            500,
            "Unable to parse 'data': Shape does not match true shape of 'data' field",
            id="nested",
        ),
        pytest.param(
            b'{"IN":[[],[3]]}',
            500,
            "Failed to parse 'data' field: shape does not match true shape",
            id="too-few",
        ),
        pytest.param(b'{"IN":1,"x":[1]}', 400, "parameter 'x' has invalid type. It should be", id="list"),
        pytest.param(b'{"IN":1,"x":null}', 400, "parameter 'x' has invalid type. It should be", id="null"),
        pytest.param(
            b'{"IN":1,"parameters":5}',
            500,
            "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object",
            id="parameters",
        ),
        pytest.param(
            b'{"IN":1,"parameters":{"x":{"y":1}}}',
            400,
            "Converting keyword: 'parameters': parameter 'x' has invalid type.",
            id="nested-parameter",
        ),
        pytest.param(b'{"IN":1,"IN":2}', 400, UNKNOWN + "input 'IN' already exists in request", id="twice"),
        pytest.param(
            b'{"IN":1,"parameters":{"IN":2}}',
            400,
            UNKNOWN + "Converting keyword: 'parameters': input 'IN' already exists in request",
            id="twice-nested",
        ),
    ],
)
def test_malformed_requests(server, route, body, status, error):
    response = ask(server, "single", body, route)
    assert response.status == status
    assert response.headers["Content-Type"] == "application/json"
    assert response.error.startswith(error)


@pytest.mark.parametrize("route", ["generate", "generate_stream"])
def test_routes(server, route):
    assert ask(server, "nope", {"IN": 1}, route).error == "Request for unknown model: 'nope' is not found"
    assert ask(server, "versions/versions/2", {"IN": 1}, route).status == 404
    assert ask(server, "echo/versions/1", {"IN": 1}, route).status == 200
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "HEAD"):
        assert server.ask(method, f"/v2/models/echo/{route}").status == 405
    refused = ask(server, "echo", b"{}", route, {"Content-Encoding": "gzip"})
    assert refused.status == 400
    assert refused.error == "Unsupported content-encoding, only 'identity' is supported."
    assert ask(server, "echo", {"IN": 1}, route, {"Content-Encoding": "identity"}).status == 200


def test_fp16_cannot_be_json(server):
    text = "receiving FP16 data via JSON is not supported. Please use the binary data format for input IN"
    assert ask(server, "id_fp16", {"IN": [1, 2]}).error == text


def test_everything_else_is_a_parameter(server):
    body = {"act": "seen", "IN": 3, "id": "q", "sequence_id": 5, "triton_x": True, "f": 1.5}
    body["parameters"] = {"deep": "d"}
    seen = ask(server, "single", {**body, "act": "with_last"}).json["SEEN"]
    assert seen == "act='with_last',id='q',sequence_id=5,triton_x=True,f=1.5,deep='d'"


def test_inputs_may_stand_among_the_parameters(server):
    assert ask(server, "echo", {"parameters": {"IN": 4}}).json["OUT"] == 4


def test_response_parameters_stand_beside_the_outputs(server):
    response = ask(server, "repeat", {"IN": 3, "act": "parameters"})
    assert b'"count":0,"half":0.5,"model_name":"repeat","model_version":"1","nan":NaN}' in response.body


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        pytest.param({"IN": []}, 200, NOT_ONE, id="none"),
        pytest.param({"IN": [1, 2]}, 200, NOT_ONE, id="two"),
        pytest.param({"IN": [], "act": "error_first"}, 404, UNKNOWN + "first", id="error"),
        pytest.param({"IN": [1], "act": "error_first"}, 404, NOT_ONE, id="error-and-one"),
        pytest.param({"IN": [1], "act": "error_last"}, 200, NOT_ONE, id="one-and-error"),
        pytest.param(
            {"IN": [1], "act": "half"},
            400,
            "sending FP16 data via JSON is not supported. Please use the binary data format for output",
            id="half",
        ),
        pytest.param(
            {"IN": [1], "act": "misfit"},
            500,
            "output tensor shape does not match size of output for 'OUT'",
            id="misfit",
        ),
    ],
)
def test_generate_wants_one_response(server, body, status, error):
    response = ask(server, "repeat", body)
    assert response.status == status
    assert response.headers["Content-Type"] == "application/json"
    assert response.error == error


def test_model_errors_are_told(server):
    response = ask(server, "echo", {"IN": -1})
    assert response.status == 500
    assert "the model met -1" in response.error


def test_texts_that_are_no_utf8_stay_as_they_are(server):
    body = ask(server, "repeat", {"IN": 1, "act": "text"}).body
    assert body == b'{"OUT":["\xff","\xc3\xa9"],"model_name":"repeat","model_version":"1"}'


def test_a_response_without_outputs(server):
    assert ask(server, "repeat", {"IN": 1, "act": "nothing"}).json == {
        "model_name": "repeat",
        "model_version": "1",
    }


def test_infer_refuses_decoupled_models(server):
    response = server.infer("repeat", {"inputs": []})
    assert response.status == 501
    assert response.error == "HTTP end point doesn't support models with decoupled transaction policy"


def test_infer_takes_request_by_request_answers(server, tensor):
    response = server.infer(
        "single", {"inputs": [tensor([3], wire="INT32")], "parameters": {"act": "with_last"}}
    )
    assert [item["data"] for item in response.json["outputs"]] == [[3], ["act='with_last'"]]


def logged(server, count, text):
    """Wait until the log has a text so often."""
    deadline = time.monotonic() + 10
    while server.log.read_text().count(text) < count:
        assert time.monotonic() < deadline, server.log.read_text()
        time.sleep(0.01)


@pytest.mark.parametrize("values", [[3], [3, 4, 5]], ids=["one", "several"])
@pytest.mark.parametrize("act", ["", "with_last", "error_last"])
def test_infer_answers_with_the_first_of_several_responses_and_logs_the_others(
    started, repository, tensor, values, act
):
    repository.repeat("several", decoupled=False)
    server = started(repository)
    body = {"inputs": [tensor(values, wire="INT32")], "parameters": {"act": act}}
    for _ in range(2):
        response = server.infer("several", body)
        assert response.status == 200
        assert response.json["outputs"][0]["data"] == [3]
    further = len(values) - 1
    text = "model several sent a further response, with %s, to request number "
    logged(server, 2 * further, text % "outputs")
    if act == "error_last":
        logged(server, 2, text % "an error (late)")
    assert server.stop() == 0
    log = server.log.read_text()
    assert log.count("a further response") == 2 * (further + (act == "error_last"))
    assert "KeyError" not in log
    assert "Traceback" not in log


def test_infer_of_a_model_that_gives_no_response(server, tensor):
    response = server.infer("single", {"inputs": [tensor([], [0], wire="INT32")]})
    assert (response.status, response.error) == (500, "expected a single response, got 0")


@pytest.mark.parametrize(
    ("values", "status", "seen"), [([3, 4], 200, [3]), ([], 500, "expected a single response, got 0")]
)
def test_an_ensemble_of_a_model_that_gives_not_exactly_one_response(
    started, repository, tensor, values, status, seen
):
    repository.repeat("part", decoupled=False)
    tensors = "".join(
        f'{role} {{ name: "{name}" data_type: TYPE_INT32 dims: [ {dim} ] }}\n'
        for role, name, dim in (("input", "IN", -1), ("output", "OUT", 1))
    )
    maps = "".join(
        f'{role}_map {{ key: "{name}" value: "{name}" }} '
        for role, name in (("input", "IN"), ("output", "OUT"))
    )
    step = f'step [ {{ model_name: "part" model_version: -1 {maps} }} ]'
    text = f'platform: "ensemble"\n{tensors}ensemble_scheduling {{ {step} }}\n'
    (repository.config("ens", text) / "1").mkdir()
    server = started(repository)
    response = server.infer("ens", {"inputs": [tensor(values, [len(values)], wire="INT32")]})
    assert response.status == status
    if status == 200:
        assert response.json["outputs"][0]["data"] == seen
        logged(server, 1, "model part sent a further response, with outputs")
    else:
        assert response.error == f"in ensemble 'ens', {seen}"
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()


# generate_stream


def test_a_stream_of_events(server):
    response = ask(server, "repeat", {"IN": [1, 2, 3], "id": "r"}, "generate_stream")
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    one = '{"OUT":%d,"id":"r","model_name":"repeat","model_version":"1"}'
    assert response.body.decode() == "".join(f"data: {one % value}\n\n" for value in (1, 2, 3))


def test_a_plain_model_streams_one_event(server):
    response = ask(server, "echo", {"IN": 5}, "generate_stream")
    assert events(response.body) == [{"OUT": 5.0, "model_name": "echo", "model_version": "1"}]


@pytest.mark.parametrize(
    ("body", "status", "found"),
    [
        pytest.param({"IN": []}, 200, [], id="none"),
        pytest.param({"IN": [1, 2], "act": "with_last"}, 200, [1, 2], id="last-with-data"),
        pytest.param({"IN": [1], "act": "error_first"}, 404, [UNKNOWN + "first", 1], id="error-first"),
        pytest.param({"IN": [1, 2], "act": "error_last"}, 200, [1, 2, "late"], id="error-last"),
    ],
)
def test_the_first_response_fixes_the_status(server, body, status, found):
    response = ask(server, "repeat", body, "generate_stream")
    assert response.status == status
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert [event.get("OUT", event.get("error")) for event in events(response.body)] == found


def test_many_events(server):
    response = ask(server, "repeat", {"IN": list(range(50)), "times": 20}, "generate_stream")
    assert [event["OUT"] for event in events(response.body)] == list(range(50)) * 20


def test_events_come_as_they_are_made(server, tmp_path):
    gate = tmp_path / "gate"
    url = f"http://{server.address}/v2/models/repeat/generate_stream"
    with requests.post(url, json={"IN": [1, 2], "wait": str(gate)}, stream=True, timeout=30) as response:
        lines = response.iter_lines()
        assert b'"OUT":1' in next(lines)
        assert next(lines) == b""
        gate.touch()
        assert b'"OUT":2' in next(lines)
        assert list(lines) == [b""]


def test_http_1_0_gets_no_chunks(server):
    data = server.talk(generate_request("repeat", b'{"IN":[1,2]}', version=b"1.0"))
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head
    assert b"\r\nConnection: close\r\n" in head
    assert [event["OUT"] for event in events(body)] == [1, 2]
    data = server.talk(generate_request("echo", b'{"IN":1}', "generate", version=b"1.0"))
    assert json.loads(data.partition(b"\r\n\r\n")[2])["OUT"] == 1


def test_pipelined_answers_keep_their_order(server, tmp_path):
    gate = tmp_path / "gate"
    first = generate_request("repeat", b'{"IN":[1,2],"wait":"%b"}' % str(gate).encode())
    last = b"GET /v2/health/live HTTP/1.1\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(first + generate_request("repeat", b'{"IN":[3,4]}') + last)
        data = b""
        while b'"OUT":1' not in data:
            data += connection.recv(65536)
        # The second answer is complete by now, or soon, but the first one is not.
        assert server.ask("GET", "/v2/health/live").status == 200
        gate.touch()
        connection.shutdown(socket.SHUT_WR)
        data += read_all(connection)
    found = []
    for _ in range(2):
        head, _, rest = data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        body, data = unchunked(rest)
        found += [event["OUT"] for event in events(body)]
    assert found == [1, 2, 3, 4]
    assert data.startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_client_that_leaves_in_the_middle(server, tmp_path):
    gate = tmp_path / "gate"
    before = len(server.log.read_text())
    with server.connect() as connection:
        connection.sendall(generate_request("repeat", b'{"IN":[1,2,3],"wait":"%b"}' % str(gate).encode()))
        assert b"HTTP/1.1 200 OK" in connection.recv(65536)
    gate.touch()
    # The model goes on for nobody, and the instances serve others.
    for _ in range(4):
        assert len(events(ask(server, "repeat", {"IN": [1, 2]}, "generate_stream").body)) == 2
    assert "Traceback" not in server.log.read_text()[before:]


def test_a_slow_reader_is_dropped_before_memory_grows(started, repository):
    repository.repeat("m")
    server = started(repository, "--http-max-stream-held=1000000")
    body = b'{"IN":[1],"times":3000,"bytes":20000}'
    with server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(generate_request("m", body))
        connection.recv(100)
        wait_for(lambda: "reads too slowly" in server.log.read_text())
    assert events(ask(server, "m", {"IN": [1]}, "generate_stream").body)[0]["OUT"] == 1


def test_held_streams_count_against_the_held_bytes(started, repository):
    repository.repeat("m")
    server = started(repository, "--http-max-held-size=3000000")
    with server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(generate_request("m", b'{"IN":[1],"times":3000,"bytes":20000}'))
        wait_for(lambda: "reads too slowly" in server.log.read_text())
    # All of it has been given back.
    for _ in range(3):
        assert ask(server, "m", b'{"IN":1,"x":"' + b"y" * 2_000_000 + b'"}').status == 200


def test_a_stop_lets_streams_end(started, repository, tmp_path):
    repository.repeat("m")
    server = started(repository)
    gate = tmp_path / "gate"
    with server.connect() as connection:
        connection.sendall(generate_request("m", b'{"IN":[1,2],"wait":"%b"}' % str(gate).encode()))
        data = connection.recv(65536)
        server.process.terminate()
        wait_for(lambda: "stopping" in server.log.read_text())
        gate.touch()
        data += read_all(connection)
    assert len(re.findall(rb'"OUT":\d', data)) == 2
    assert data.endswith(b"0\r\n\r\n")
    assert server.process.wait(30) == 0


def test_legacy_has_one_status_for_errors_of_models(started, repository):
    repository.repeat("m")
    server = started(repository, "--compat=24.10")
    for route in ("generate", "generate_stream"):
        assert ask(server, "m", {"IN": [], "act": "error_first"}, route).status == 400
    response = ask(server, "m", {"IN": [[]]})
    assert response.error == "Unable to parse 'data': Shape does not match true shape of 'data' field"


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
