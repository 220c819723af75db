"""Inference with binary tensors, raw bodies and compressed bodies."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

TAGGED = "[request id: <id_unknown>] "
SAMPLES = {
    "BOOL": np.array([[True, False]]),
    "UINT8": np.array([[0, 255]], dtype=np.uint8),
    "UINT16": np.array([[0, 65535]], dtype=np.uint16),
    "UINT32": np.array([[0, 2**32 - 1]], dtype=np.uint32),
    "UINT64": np.array([[0, 2**64 - 1]], dtype=np.uint64),
    "INT8": np.array([[-128, 127]], dtype=np.int8),
    "INT16": np.array([[-32768, 32767]], dtype=np.int16),
    "INT32": np.array([[-(2**31), 2**31 - 1]], dtype=np.int32),
    "INT64": np.array([[-(2**63), 2**63 - 1]], dtype=np.int64),
    "FP16": np.array([[0.5, -65504]], dtype=np.float16),
    "FP32": np.array([[0.1, np.inf]], dtype=np.float32),
    "FP64": np.array([[0.1, -np.inf]], dtype=np.float64),
    "BYTES": np.array([["", "naïve ✓"]], dtype=object),
}


@pytest.fixture
def client(server):
    """tritonclient over HTTP."""
    client = triton.InferenceServerClient(server.address)
    yield client
    client.close()


def binary_request(inputs, blobs, **more):
    header = json.dumps({"inputs": inputs, **more}).encode()
    return header + b"".join(blobs), {"Inference-Header-Content-Length": str(len(header))}


def entry(size, shape=(1, 2), wire="FP32", name="IN"):
    return {"name": name, "shape": list(shape), "datatype": wire, "parameters": {"binary_data_size": size}}


@pytest.mark.parametrize("wire", SAMPLES)
@pytest.mark.parametrize("rows", [1, 3])
def test_the_real_client_gets_every_type_back(client, wire, rows):
    sample = np.repeat(SAMPLES[wire], rows, axis=0)
    item = triton.InferInput("IN", list(sample.shape), wire)
    item.set_data_from_numpy(sample, binary_data=True)
    for _ in range(3):
        result = client.infer(f"id_{wire.lower()}", [item]).as_numpy("OUT")
        if wire == "BYTES":
            result = np.array([text.decode() for text in result.ravel()], dtype=object).reshape(result.shape)
        np.testing.assert_array_equal(result, sample)


@pytest.mark.parametrize("wire", [wire for wire in SAMPLES if wire != "FP16"])
@pytest.mark.parametrize(("binary_in", "binary_out"), [(True, False), (False, True), (False, False)])
def test_the_real_client_mixes_json_and_binary(client, wire, binary_in, binary_out):
    sample = np.nan_to_num(SAMPLES[wire], posinf=1, neginf=1) if wire in {"FP32", "FP64"} else SAMPLES[wire]
    item = triton.InferInput("IN", list(sample.shape), wire)
    item.set_data_from_numpy(sample, binary_data=binary_in)
    outputs = [triton.InferRequestedOutput("OUT", binary_data=binary_out)]
    result = client.infer(f"id_{wire.lower()}", [item], outputs=outputs, request_id="r1")
    array = result.as_numpy("OUT")
    if wire == "BYTES":
        array = np.array([x.decode() if isinstance(x, bytes) else x for x in array.ravel()], dtype=object)
        array = array.reshape(sample.shape)
    np.testing.assert_array_equal(array, sample)
    assert result.get_response()["id"] == "r1"


def test_the_real_client_reads_everything_else(client, server):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("id_fp32")
    assert client.is_model_ready("versions", "3")
    assert client.get_server_metadata()["name"] == "test server"
    assert client.get_model_metadata("sum")["outputs"][1]["name"] == "DIFFERENCE"
    assert client.get_model_config("sum")["max_batch_size"] == 4
    assert client.get_inference_statistics("sum")["model_stats"][0]["name"] == "sum"
    assert {"name": "sum", "version": "1", "state": "READY"} in client.get_model_repository_index()
    with pytest.raises(InferenceServerException) as refused:
        client.load_model("sum")
    assert refused.value.status() == "503"


def test_the_real_client_compresses(client):
    sample = np.ones((8, 2), dtype=np.float32)
    item = triton.InferInput("IN", [8, 2], np_to_triton_dtype(sample.dtype))
    item.set_data_from_numpy(sample)
    for way in ("gzip", "deflate"):
        result = client.infer(
            "id_fp32", [item], request_compression_algorithm=way, response_compression_algorithm=way
        )
        np.testing.assert_array_equal(result.as_numpy("OUT"), sample)


def test_the_real_client_classifies(client):
    item = triton.InferInput("IN", [1, 4], "FP32")
    item.set_data_from_numpy(np.array([[0, 3, 2, 1]], dtype=np.float32))
    outputs = [triton.InferRequestedOutput("OUT", class_count=2)]
    result = client.infer("classes", [item], outputs=outputs).as_numpy("OUT")
    assert result.ravel().tolist() == [b"3.000000:1:one", b"2.000000:2:two"]


def test_a_response_with_blobs_says_how_long_its_json_part_is(server):
    body, headers = binary_request(
        [entry(8)], [struct.pack("<2f", 1, 2)], parameters={"binary_data_output": True}
    )
    response = server.infer("id_fp32", body, headers)
    assert response.headers["Content-Type"] == "application/octet-stream"
    length = int(response.headers["Inference-Header-Content-Length"])
    assert json.loads(response.body[:length])["outputs"] == [
        {"name": "OUT", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    ]
    assert response.body[length:] == struct.pack("<2f", 1, 2)


def test_named_outputs_are_json_unless_they_ask_for_binary(server):
    body, headers = binary_request(
        [entry(8, name="A"), entry(8, name="B")],
        [struct.pack("<2f", 3, 4), struct.pack("<2f", 1, 2)],
        parameters={"binary_data_output": True},
        outputs=[{"name": "SUM"}, {"name": "DIFFERENCE", "parameters": {"binary_data": True}}],
    )
    response = server.infer("sum", body, headers)
    length = int(response.headers["Inference-Header-Content-Length"])
    first, second = json.loads(response.body[:length])["outputs"]
    assert first["data"] == [4, 6]
    assert second["parameters"] == {"binary_data_size": 8}
    assert response.body[length:] == struct.pack("<2f", 2, 2)


def test_json_and_binary_inputs_may_be_mixed(server, tensor):
    body, headers = binary_request(
        [tensor([[3, 4]], name="A"), entry(8, name="B")], [struct.pack("<2f", 1, 2)]
    )
    for _ in range(3):
        assert server.infer("sum", body, headers).json["outputs"][0]["data"] == [4, 6]


def test_an_output_without_bytes_leaves_the_answer_plain_json(server):
    body, headers = binary_request([entry(0, (0,), "INT32")], [], parameters={"binary_data_output": True})
    response = server.infer("open_whole", body, headers)
    assert response.headers["Content-Type"] == "application/json"
    assert response.json["outputs"][0]["parameters"] == {"binary_data_size": 0}


@pytest.mark.parametrize(
    ("inputs", "blob", "headers", "status", "text"),
    [
        (
            [entry(8)],
            bytes(4),
            {},
            400,
            "unexpected size for input 'IN', expecting 4 additional bytes for model 'id_fp32'",
        ),
        ([entry(8)], bytes(12), {}, 400, "unexpected additional input data for model 'id_fp32'"),
        (
            [entry(12)],
            bytes(12),
            {},
            400,
            TAGGED + "input byte size mismatch for input 'IN' for model 'id_fp32'. Expected 8, got 12",
        ),
        (
            [entry(8)],
            bytes(8),
            {"Inference-Header-Content-Length": "-1"},
            400,
            "inference header size should be in range (0, {size}), got: -1",
        ),
        (
            [entry(8)],
            bytes(8),
            {"Inference-Header-Content-Length": "abc"},
            400,
            "Unable to parse Inference-Header-Content-Length, got: abc",
        ),
    ],
)
def test_what_a_wrong_binary_request_is_told(server, inputs, blob, headers, status, text):
    body, given = binary_request(inputs, [blob])
    for _ in range(2):
        response = server.infer("id_fp32", body, {**given, **headers})
        assert (response.status, response.error) == (status, text.replace("{size}", str(len(body))))


@pytest.mark.parametrize(
    ("blob", "text"),
    [
        (
            b"\x01\x00\x00\x00ab\x01",
            TAGGED
            + "incomplete string length indicator for inference input 'IN' for model 'strings', expecting 4 "
            "bytes but only 2 bytes available. Please make sure the string length indicator is in one "
            "buffer.",
        ),
        (
            b"\x09\x00\x00\x00ab",
            (
                "incomplete string data for inference input 'IN', expecting string of length 9 but only 2 "
                "bytes available"
            ),
        ),
        (
            b"\x01\x00\x00\x00a\x01\x00\x00\x00b",
            TAGGED + "unexpected number of string elements 2 for inference input 'IN' for model 'strings', "
            "expecting 1",
        ),
        (b"", TAGGED + "expected 1 string elements for inference input 'IN' for model 'strings', got 0"),
    ],
)
def test_strings_in_blobs_are_checked(server, blob, text):
    body, headers = binary_request([entry(len(blob), (1, 1), "BYTES")], [blob])
    response = server.infer("strings", body, headers)
    assert (response.status, response.error) == (400, text)


def test_a_string_that_the_model_cannot_take_is_told_to_the_client(server):
    blob = b"\x01\x00\x00\x00\xff"
    body, headers = binary_request([entry(5, (1, 1), "BYTES")], [blob])
    response = server.infer("strings", body, headers)
    assert response.status == 400
    assert "not UTF-8" in response.error


def test_a_string_that_the_model_cannot_take_costs_only_its_own_request(started, repository):
    """A request waits for a second one to share a batch with."""
    batching = "dynamic_batching { max_queue_delay_microseconds: 60000000 }"
    repository.identity("strings", "BYTES", (1,), batch=2, extra=batching)
    server = started(repository)
    body, headers = binary_request([entry(5, (1, 1), "BYTES")], [b"\x01\x00\x00\x00\xff"])
    good, _ = binary_request([entry(5, (1, 1), "BYTES")], [b"\x01\x00\x00\x00a"])
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(server.infer, "strings", good, headers)
        assert server.infer("strings", body, headers).status == 400
        assert server.infer("strings", b"\xff", {"Inference-Header-Content-Length": "0"}).status == 400
        assert server.infer("strings", good, headers).status == 200
        assert waiting.result().status == 200


def test_a_raw_body_is_the_only_input(server):
    headers = {"Inference-Header-Content-Length": "0"}
    response = server.infer("id_fp32", struct.pack("<2f", 1.5, 2.5), headers)
    length = int(response.headers["Inference-Header-Content-Length"])
    assert json.loads(response.body[:length])["outputs"][0]["shape"] == [1, 2]
    assert response.body[length:] == struct.pack("<2f", 1.5, 2.5)
    response = server.infer("variable", bytes(20), headers)
    assert b'"shape":[1,5]' in response.body
    response = server.infer("strings", b"one element", headers)
    assert response.body.endswith(b"\x0b\x00\x00\x00one element")


def test_raw_bodies_that_do_not_fit(server):
    headers = {"Inference-Header-Content-Length": "0"}
    response = server.infer("sum", bytes(8), headers)
    assert response.error == (
        "[request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got "
        "2 inputs in 'sum' model configuration"
    )
    empty = server.infer("id_fp32", b"")
    assert empty.status == 400
    assert empty.error == (
        TAGGED + "input byte size mismatch for input 'raw_input' for model 'id_fp32'. Expected 8, got 0"
    )
    assert "must have input shape [1]" in server.infer("id_bytes", b"x", headers).error


def test_compression(server, tensor):
    plain = json.dumps({"inputs": [tensor([[1, 2]])]}).encode()
    for coding, squeeze in (("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)):
        response = server.infer(
            "id_fp32", squeeze(plain), {"Content-Encoding": coding, "Accept-Encoding": "deflate;q=0.1, gzip"}
        )
        assert response.headers["Content-Encoding"] == "gzip"
        assert json.loads(gzip.decompress(response.body))["outputs"][0]["data"] == [1, 2]
    response = server.infer("id_fp32", plain, {"Accept-Encoding": "br, identity, gzip;q=0.5"})
    assert "Content-Encoding" not in response.headers


def test_compression_that_is_not_known(server):
    response = server.infer("id_fp32", b"x", {"Content-Encoding": "br"})
    assert (response.status, response.error) == (501, "Unsupported compression type")
    assert response.headers["Accept-Encoding"] == "gzip, deflate"


@pytest.mark.parametrize("model", ["id_fp32", "variable"])
@pytest.mark.parametrize("body", [b"no gzip", gzip.compress(bytes(100))[:-9]], ids=["corrupt", "cut"])
def test_a_compressed_body_that_is_corrupt_is_refused(server, model, body):
    response = server.infer(model, body, {"Content-Encoding": "gzip"})
    assert (response.status, response.error) == (400, "request body is not complete gzip data")


def test_what_follows_compressed_data_is_not_passed_over(server):
    packed = gzip.compress(bytes(8)) + gzip.compress(bytes(4))
    headers = {"Content-Encoding": "gzip", "Inference-Header-Content-Length": "0"}
    response = server.infer("variable", packed, headers)
    assert response.status == 400
    assert (
        response.error
        == f"request body has {len(gzip.compress(bytes(4)))} bytes behind the end of its gzip data"
    )


def test_a_corrupt_body_counts_as_an_empty_one_for_release_24_10(started, repository):
    repository.identity("fixed")
    response = started(repository, "--compat=24.10").infer("fixed", b"no", {"Content-Encoding": "gzip"})
    assert (response.status, "raw_input" in response.error) == (400, True)


def test_a_small_body_that_inflates_without_end_is_refused(server):
    bomb = gzip.compress(bytes(65 << 20), 9)
    response = server.infer("id_fp32", bomb, {"Content-Encoding": "gzip"})
    assert response.status == 400
    assert "exceeds the maximum allowed value" in response.error
