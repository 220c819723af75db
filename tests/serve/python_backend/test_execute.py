"""What python models answer, by real servers."""

from __future__ import annotations

import json
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

VALUES = {
    "BOOL": np.array([[True, False]]),
    "UINT8": np.array([[0, 255]], dtype=np.uint8),
    "UINT16": np.array([[0, 65535]], dtype=np.uint16),
    "UINT32": np.array([[0, 2**32 - 1]], dtype=np.uint32),
    "UINT64": np.array([[0, 2**64 - 1]], dtype=np.uint64),
    "INT8": np.array([[-128, 127]], dtype=np.int8),
    "INT16": np.array([[-(2**15), 2**15 - 1]], dtype=np.int16),
    "INT32": np.array([[-(2**31), 2**31 - 1]], dtype=np.int32),
    "INT64": np.array([[-(2**63), 2**63 - 1]], dtype=np.int64),
    "FP16": np.array([[1.5, -0.0]], dtype=np.float16),
    "FP32": np.array([[1.5, np.inf]], dtype=np.float32),
    "FP64": np.array([[1e300, -0.0]], dtype=np.float64),
}


def binary(server, model, wire, shape, data, **more):
    """One binary request; shape and bytes of its output."""
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "IN",
                    "datatype": wire,
                    "shape": list(shape),
                    "parameters": {"binary_data_size": len(data)},
                }
            ],
            "parameters": {"binary_data_output": True},
            **more,
        }
    ).encode()
    answer = server.infer(model, head + data, {"Inference-Header-Content-Length": str(len(head))})
    assert answer.status == 200, answer.body
    length = int(answer.headers.get("Inference-Header-Content-Length", len(answer.body)))
    (output,) = json.loads(answer.body[:length])["outputs"]
    assert output["datatype"] == wire
    return tuple(output["shape"]), answer.body[length:]


def test_every_type_comes_back_as_it_was(started, repository, models, identity):
    for wire in VALUES:
        models.add(f"id_{wire.lower()}", identity, wire=wire, dims="2")
    server = started(repository)
    for wire, array in VALUES.items():
        got = binary(server, f"id_{wire.lower()}", wire, array.shape, array.tobytes())
        assert got == (array.shape, array.tobytes()), wire


def test_strings_come_back_as_they_were(started, repository, models, identity):
    models.add("strings", identity, wire="BYTES", dims="3")
    server = started(repository)
    data = b"".join(struct.pack("<I", len(text)) + text for text in (b"", b"\x00\xff", "häß".encode()))
    assert binary(server, "strings", "BYTES", (1, 3), data) == ((1, 3), data)
    body = {"inputs": [{"name": "IN", "datatype": "BYTES", "shape": [1, 3], "data": ["a", "", "ü"]}]}
    assert server.infer("strings", body).json["outputs"][0]["data"] == ["a", "", "ü"]


def test_tensors_larger_than_any_buffer_on_the_way_come_back(started, repository, models, identity):
    models.add("large", identity, wire="FP32", dims="-1", batch=0)
    server = started(repository)
    array = np.arange(3_000_001, dtype=np.float32)
    shape, data = binary(server, "large", "FP32", array.shape, array.tobytes())
    assert shape == array.shape
    assert np.array_equal(np.frombuffer(data, np.float32), array)


def test_arrays_of_subclasses_come_back_as_plain_ones(started, repository, models, one):
    models.add(
        "subclasses",
        """
        class Row(np.ndarray):
            def reshape(self, *shape):
                return self

        KINDS = [np.matrix, np.ma.masked_array, lambda array: array.view(Row)]

        class TritonPythonModel:
            def execute(self, requests):
                array = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.int32)
                kind = KINDS[int(requests[0].inputs()[0].as_numpy()[0, 0])]
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", kind(array))]) for _ in requests]
        """,
    )
    server = started(repository)
    for kind in [0, 1, 2, 0]:
        answer = server.infer("subclasses", one(kind))
        assert answer.status == 200, answer.body
        (output,) = answer.json["outputs"]
        assert (output["shape"], output["data"]) == ([2, 3], [1, 2, 3, 4, 5, 6])


def test_empty_tensors_come_back(started, repository, models, identity):
    models.add("open", identity, wire="FP32", dims="-1", batch=0)
    server = started(repository)
    body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [0], "data": []}]}
    (output,) = server.infer("open", body).json["outputs"]
    assert output == {"name": "OUT", "datatype": "FP32", "shape": [0], "data": []}


def test_shapes_are_carried_over_by_reshape(started, repository, models):
    models.add(
        "folded",
        """
        class TritonPythonModel:
            def execute(self, requests):
                (request,) = requests
                array = request.inputs()[0].as_numpy()
                assert array.shape == (1, 4), array.shape
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)])]
        """,
        config='max_batch_size: 8\ninput [{ name: "IN" data_type: TYPE_INT32 dims: [ 2, 2 ] '
        'reshape { shape: [ 4 ] } }]\noutput [{ name: "OUT" data_type: TYPE_INT32 dims: [ 2, 2 ] '
        "reshape { shape: [ 4 ] } }]\n",
    )
    server = started(repository)
    body = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, 2, 2], "data": [1, 2, 3, 4]}]}
    (output,) = server.infer("folded", body).json["outputs"]
    assert output == {"name": "OUT", "datatype": "INT32", "shape": [1, 2, 2], "data": [1, 2, 3, 4]}


ECHO = """
import json

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            seen = {
                "inputs": [tensor.name() for tensor in request.inputs()],
                "id": request.request_id(),
                "correlation": request.correlation_id(),
                "flags": request.flags(),
                "timeout": request.timeout(),
                "parameters": request.parameters(),
                "outputs": sorted(request.requested_output_names()),
                "cancelled": request.is_cancelled(),
                "trace": request.trace().get_context(),
                "batch": len(requests),
            }
            text = np.array([[json.dumps(seen)]], dtype=object)
            answers.append(
                pb_utils.InferenceResponse(
                    [pb_utils.Tensor(name, text) for name in ("MORE", "OUT", "NONE")],
                    parameters={"truth": True, "number": 3, "text": "x"},
                )
            )
        return answers
"""
ECHO_CONFIG = (
    'max_batch_size: 8\ninput [{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }, '
    '{ name: "MAYBE" data_type: TYPE_INT32 dims: [ 1 ] optional: true }]\n'
    'output [{ name: "OUT" data_type: TYPE_STRING dims: [ 1 ] }, '
    '{ name: "MORE" data_type: TYPE_STRING dims: [ 1 ] }]\n'
)


def test_a_request_shows_what_the_client_said(started, repository, models, one):
    models.add("echo", ECHO, config=ECHO_CONFIG)
    server = started(repository)
    plain = server.infer("echo", one()).json
    assert [output["name"] for output in plain["outputs"]] == ["MORE", "OUT"]
    assert plain["parameters"] == {"truth": True, "number": 3, "text": "x"}
    assert json.loads(plain["outputs"][0]["data"][0]) == {
        "inputs": ["IN"],
        "id": "",
        "correlation": 0,
        "flags": 0,
        "timeout": 0,
        "parameters": "{}",
        "outputs": ["MORE", "OUT"],
        "cancelled": False,
        "trace": None,
        "batch": 1,
    }
    body = one(
        id="seven",
        parameters={"z": 1, "a": "x", "timeout": 40, "sequence_id": 9, "sequence_start": True, "b": False},
        outputs=[{"name": "OUT"}],
    )
    body["inputs"].append({"name": "MAYBE", "datatype": "INT32", "shape": [1, 1], "data": [1]})
    (output,) = server.infer("echo", body).json["outputs"]
    seen = json.loads(output["data"][0])
    assert output["name"] == "OUT"
    assert seen["inputs"] == ["IN", "MAYBE"]
    assert seen["parameters"] == '{"z":1,"a":"x","b":false}'
    assert (seen["id"], seen["correlation"], seen["flags"], seen["timeout"]) == ("seven", 9, 1, 40)
    assert seen["outputs"] == ["OUT"]


def test_requests_of_a_batch_are_handed_over_one_by_one(started, repository, models, one):
    models.add(
        "batches",
        """
        class TritonPythonModel:
            def execute(self, requests):
                rows = [request.inputs()[0].as_numpy() for request in requests]
                return [
                    pb_utils.InferenceResponse([pb_utils.Tensor("OUT", row * 10 + len(requests))])
                    for row in rows
                ]
        """,
        extra="dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 20000000 }\n",
    )
    server = started(repository)
    barrier = threading.Barrier(4)

    def ask(value):
        barrier.wait()
        return server.infer("batches", one(value)).json["outputs"][0]["data"]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [[4], [14], [24], [34]]
    assert server.statistics("batches")["execution_count"] == 1


def test_ragged_requests_share_a_batch_and_keep_their_shapes(started, repository, models):
    models.add(
        "ragged",
        """
        class TritonPythonModel:
            def execute(self, requests):
                return [
                    pb_utils.InferenceResponse([
                        pb_utils.Tensor("OUT", np.array([[request.inputs()[0].shape()[1], len(requests)]]))
                    ])
                    for request in requests
                ]
        """,
        config='max_batch_size: 8\ninput [{ name: "IN" data_type: TYPE_INT32 dims: [ -1 ] '
        'allow_ragged_batch: true }]\noutput [{ name: "OUT" data_type: TYPE_INT64 dims: [ 2 ] }]\n'
        "dynamic_batching { preferred_batch_size: [ 3 ] max_queue_delay_microseconds: 20000000 }\n",
    )
    server = started(repository)
    barrier = threading.Barrier(3)

    def ask(width):
        barrier.wait()
        body = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, width], "data": [0] * width}]}
        return server.infer("ragged", body).json["outputs"][0]["data"]

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(ask, (1, 2, 5))) == [[1, 3], [2, 3], [5, 3]]


def test_a_coroutine_is_awaited(started, repository, models, one):
    models.add(
        "asynchronous",
        """
        import asyncio

        class TritonPythonModel:
            async def execute(self, requests):
                await asyncio.sleep(0.001)
                value = requests[0].inputs()[0].as_numpy()
                if value[0, 0] < 0:
                    raise ValueError("below zero")
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)])]
        """,
    )
    server = started(repository)
    assert server.infer("asynchronous", one(3)).json["outputs"][0]["data"] == [3]
    assert "ValueError: below zero" in server.infer("asynchronous", one(-3)).error


def test_bfloat16_passes_by_dlpack(started, repository, models):
    models.add(
        "bits",
        """
        class TritonPythonModel:
            def execute(self, requests):
                tensor = requests[0].inputs()[0]
                assert tensor.as_numpy() is None
                made = pb_utils.Tensor.from_dlpack("OUT", tensor.to_dlpack())
                assert made.triton_dtype() == 14
                return [pb_utils.InferenceResponse([made])]
        """,
        wire="BF16",
        dims="2",
    )
    server = started(repository)
    data = struct.pack("<HH", 0x3F80, 0xC000)
    assert binary(server, "bits", "BF16", (1, 2), data) == ((1, 2), data)


@pytest.mark.parametrize("given", ["numpy", "capsule"])
def test_dlpack_shares_arrays(started, repository, models, one, given):
    source = "array" if given == "numpy" else "pb_utils.Tensor('X', array).to_dlpack()"
    models.add(
        "shared",
        f"""
        class TritonPythonModel:
            def execute(self, requests):
                array = requests[0].inputs()[0].as_numpy()
                assert np.shares_memory(np.from_dlpack(requests[0].inputs()[0]), array)
                tensor = pb_utils.Tensor.from_dlpack("OUT", {source})
                array += 1
                return [pb_utils.InferenceResponse([tensor])]
        """,
    )
    server = started(repository)
    assert server.infer("shared", one(3)).json["outputs"][0]["data"] == [4]
