"""Requests that are meant to cost much, or to be read in two ways."""

from __future__ import annotations

import gzip
import json
import zlib

import psutil
import pytest

from repobuild_serve.errors import RequestError
from repobuild_serve.wire.plan import element_count

BASE = {"name": "IN", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
LIVE = b"GET /v2/health/live HTTP/1.1\r\n\r\n"
INDEX = b"POST /v2/repository/index HTTP/1.1\r\n"
CHUNK = b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
MIB = 1 << 20


def ask(server, model="variable", route="infer", **document):
    return server.ask("POST", f"/v2/models/{model}/{route}", document)


def input_(**changes):
    return {**BASE, **changes}


# one request read in two ways


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="coding"),
        pytest.param(b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", id="length"),
        pytest.param(b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", id="length-twice"),
        pytest.param(b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", id="two-lengths"),
        pytest.param(b"Content-Length: 2, 2\r\n\r\n{}", id="list-of-lengths"),
        pytest.param(b"Content-Length: +2\r\n\r\n{}", id="plus"),
        pytest.param(b"Content-Length: -2\r\n\r\n{}", id="minus"),
        pytest.param(b"Content-Length: 0x2\r\n\r\n{}", id="hex"),
        pytest.param(b"Content-Length: \r\n\r\n", id="no-length"),
        pytest.param(b"Transfer-Encoding: chunked, identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n", id="identity-last"),
        pytest.param(b"Transfer-Encoding : chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", id="space-before-colon"),
        pytest.param(b"Content-Length: 2\r\n x: 1\r\n\r\n{}", id="folded"),
        pytest.param(b"X: a\rTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}", id="bare-cr"),
        pytest.param(b"X: a\0b\r\nContent-Length: 2\r\n\r\n{}", id="nul"),
        pytest.param(b": 2\r\nContent-Length: 2\r\n\r\n{}", id="no-name"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n2z\r\n{}\r\n0\r\n\r\n", id="chunk-size"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}", id="chunk-size-large"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx0\r\n\r\n", id="chunk-end"),
    ],
)
def test_ambiguous_requests_get_no_answer_and_nothing_after_them_does(server, head):
    assert server.talk(INDEX + head + LIVE) == b""


@pytest.mark.parametrize(
    "coding", [b"gzip, chunked", b"identity", b"xchunked", b"gzip\r\nTransfer-Encoding: x"]
)
def test_other_transfer_codings_are_refused(server, coding):
    data = server.talk(INDEX + b"Transfer-Encoding: %b\r\n\r\n2\r\n{}\r\n0\r\n\r\n" % coding + LIVE)
    assert data.startswith(b"HTTP/1.1 501 Not Implemented\r\nConnection: close\r\n")
    assert data.count(b"HTTP/1.1") == 1


def test_a_chunk_extension_is_passed_over(server):
    data = server.talk(INDEX + CHUNK.replace(b"2\r\n", b"2;a=b\r\n") + LIVE)
    assert data.count(b"HTTP/1.1 200 OK") == 2


# floods


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(b"a: b\r\n" * 20_000 + b"\r\n", id="headers"),
        pytest.param(b"a: " + b"b" * MIB + b"\r\n\r\n", id="header"),
        pytest.param(b"a" * MIB + b": b\r\n\r\n", id="name"),
        pytest.param(
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 20_000 + b"\r\n", id="trailers"
        ),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n0\r\na: " + b"b" * MIB + b"\r\n\r\n", id="trailer"),
    ],
)
def test_header_floods_are_refused(server, flood):
    data = server.talk(INDEX + flood)
    assert data.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n")


def test_a_long_target_is_refused(server):
    assert server.talk(b"GET /" + b"x" * MIB + b" HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 431 ")


def test_empty_chunks_and_lines_cost_nothing(server):
    memory = psutil.Process(server.process.pid).memory_info
    before = memory().rss
    chunk = b"Transfer-Encoding: chunked\r\n\r\n2;" + b"x" * 4 * MIB + b"\r\n{}\r\n0\r\n\r\n"
    data = server.talk(INDEX + chunk + b"\r\n" * MIB + LIVE)
    assert data.count(b"HTTP/1.1 200 OK") == 2
    assert memory().rss - before < 64 * MIB


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_bomb_is_not_unpacked(server, encoding):
    memory = psutil.Process(server.process.pid).memory_info
    pack = gzip.compress if encoding == "gzip" else zlib.compress
    packed = pack(bytes(300 * MIB), 9)
    before = memory().rss
    response = server.infer("variable", packed, {"Content-Encoding": encoding})
    assert response.status == 400
    assert response.error.startswith("Decompressed data size exceeds the maximum allowed value of 67108864")
    assert memory().rss - before < 200 * MIB


def test_gzip_within_gzip_is_one_layer(server):
    packed = gzip.compress(gzip.compress(json.dumps({"inputs": [BASE]}).encode()))
    assert server.infer("variable", packed, {"Content-Encoding": "gzip, gzip"}).status == 501
    assert server.infer("variable", packed, {"Content-Encoding": "gzip"}).status == 500


# documents


@pytest.mark.parametrize(
    ("dims", "error"),
    [
        pytest.param([1, 2**60], "true shape", id="large"),
        pytest.param([1, 2**63 - 1], "causes total element count to exceed maximum size", id="larger"),
        pytest.param([2**62, 2**62], "causes total element count to exceed maximum size", id="product"),
        pytest.param([2**62] * 100_000, "causes total element count to exceed maximum size", id="many"),
        pytest.param([1] * 100_000, "true shape", id="ones"),
        pytest.param([1, 2**64], "non-unsigned-integer", id="beyond"),
        pytest.param([1, -1], "non-unsigned-integer", id="negative"),
        pytest.param([1, True], "non-unsigned-integer", id="boolean"),
        pytest.param([1, 2.0], "non-unsigned-integer", id="float"),
        pytest.param([0, 2**62], "true shape", id="zero"),
    ],
)
def test_shapes_in_json(server, dims, error):
    response = ask(server, inputs=[input_(shape=dims)])
    assert response.status in {400, 500}
    assert error in response.error
    assert len(response.body) < 5000


@pytest.mark.parametrize("model", ["variable", "open_whole", "strings"])
@pytest.mark.parametrize("dims", [[1, 2**62], [2**62], [2**62, 2**62], [1, 2**40], [1] * 1000])
def test_shapes_of_blobs(server, model, dims):
    wire = {"variable": "FP32", "open_whole": "INT32", "strings": "BYTES"}[model]
    header = json.dumps(
        {"inputs": [{"name": "IN", "datatype": wire, "shape": dims, "parameters": {"binary_data_size": 8}}]}
    ).encode()
    given = {"Inference-Header-Content-Length": str(len(header))}
    response = server.infer(model, header + bytes(8), given)
    assert response.status == 400
    assert "internal error" not in response.error


def test_the_product_of_many_dims_is_not_worked_out():
    assert element_count("x", [2, 3, 4]) == 24
    assert element_count("x", []) == 1
    assert element_count("x", [2**62] * 10 + [0]) == 0
    assert element_count("x", [2**61], 4 - 1) == 2**61
    with pytest.raises(RequestError, match="exceed maximum size of 9223372036854775807"):
        element_count("x", [2**61], 4)
    with pytest.raises(RequestError, match=r"shape \[2,2,.*,\.\.\.\] causes"):
        element_count("x", [2] * 10_000_000)


def test_many_inputs(server):
    response = ask(server, inputs=[BASE] * 50_000)
    assert response.error.endswith("input 'IN' already exists in request")
    response = ask(server, inputs=[input_(name=str(index)) for index in range(50_000)])
    assert "expected 1 inputs but got 50000 inputs" in response.error


def test_many_outputs(server):
    response = ask(server, inputs=[BASE], outputs=[{"name": "OUT"}] * 1_000_000)
    assert response.error == "output 'OUT' already exists in request"
    response = ask(server, inputs=[BASE], outputs=[{"name": str(index)} for index in range(100_000)])
    assert response.error == "unexpected inference output '0' for model 'variable'"


def test_a_long_id_comes_back(server):
    assert ask(server, id="x" * 5_000_000, inputs=[BASE]).json["id"] == "x" * 5_000_000


@pytest.mark.parametrize("route", ["infer", "generate"])
def test_deep_documents(server, route):
    for body in (b'{"inputs":' + b"[" * 1_000_000, b'{"IN":' * 1_000_000, b"[" * 101 + b"]" * 101):
        response = server.ask("POST", f"/v2/models/variable/{route}", body)
        assert response.status == 400
        assert "nesting depth exceeds the maximum of 100" in response.error


def test_brackets_in_strings_are_not_depth(server):
    text = "[" * 1_000_000 + '"' * 1000 + "\\" * 1000
    assert ask(server, inputs=[BASE], parameters={"x": text}).status == 200


def test_many_parameters(server):
    parameters = {str(index): index for index in range(100_000)}
    assert ask(server, inputs=[BASE], parameters=parameters).status == 200
    assert ask(server, route="generate", IN=[1], **parameters).status == 200


def test_very_long_numbers(server):
    body = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[' + b"9" * 1_000_000 + b"]}]}"
    response = server.infer("variable", body)
    assert response.status == 500
    assert "failed to parse the request JSON buffer" in response.error


def test_more_classes_than_there_are(server):
    outputs = [{"name": "OUT", "parameters": {"classification": 2**64 - 1}}]
    assert len(ask(server, inputs=[BASE], outputs=outputs).json["outputs"][0]["data"]) == 2


def test_the_server_still_answers(server):
    assert ask(server, inputs=[BASE]).status == 200
    assert "could not be read" not in server.log.read_text()
