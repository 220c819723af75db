"""What python models ask of the server."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

CALLER = """
import asyncio
import json

def answer(array):
    row = np.asarray(array, dtype=np.float32).reshape(1, -1)
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", row)])

def ask(model, array, outputs=("OUT",), **more):
    tensor = pb_utils.Tensor("IN", np.asarray(array))
    return pb_utils.InferenceRequest(
        model_name=model, inputs=[tensor], requested_output_names=list(outputs), **more
    )

def told(response):
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()

class TritonPythonModel:
    def initialize(self, args):
        if "INITIAL" in os.environ:
            self.first = told(ask("onnx", np.ones((1, 2), np.float32)).exec())

    async def execute(self, requests):
        (request,) = requests
        what = json.loads(request.parameters())["what"]
        array = request.inputs()[0].as_numpy()
        if what == "onnx":
            return [answer(told(ask("onnx", array).exec()))]
        if what == "many":
            asked = [ask("onnx", array + number).async_exec() for number in range(8)]
            return [answer(sum(told(response) for response in await asyncio.gather(*asked)))]
        if what == "stream":
            responses = ask("repeat", array).exec(decoupled=True)
            first = [told(r)[0, 0] for r in responses if r.has_error() or r.output_tensors()]
            again = [told(r)[0, 0] for r in responses if r.output_tensors()]
            assert first == again
            return [answer(first)]
        if what == "stream_async":
            got = []
            for response in await ask("repeat", array).async_exec(decoupled=True):
                got += [tensor.as_numpy()[0, 0] for tensor in response.output_tensors()]
            return [answer(got)]
        if what == "plain_stream":
            return [answer([told(r)[0, 0] for r in ask("onnx", array).exec(decoupled=True)])]
        if what == "decoupled":
            return [answer(told(ask("repeat", array).exec()))]
        if what == "nope":
            return [answer(told(ask("nope", array).exec()))]
        if what == "output":
            return [answer(told(ask("onnx", array, ["OTHER"]).exec()))]
        if what == "type":
            return [answer(told(ask("onnx", array.astype(np.int64)).exec()))]
        if what == "raises":
            return [answer(told(ask("raising", array).exec()))]
        if what == "ready":
            return [answer([pb_utils.is_model_ready("onnx"), pb_utils.is_model_ready("onnx", "1"),
                            pb_utils.is_model_ready("onnx", "7"), pb_utils.is_model_ready("nope")])]
        if what == "load":
            pb_utils.load_model("onnx")
        if what == "context":
            asked = ask("context", array, request_id="r", correlation_id=4, flags=1, timeout=9,
                        parameters={"k": "v", "n": 1})
            raise ValueError(asked.exec().error().message())
"""
REPEAT = """
import threading

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.answer, args=(request,)).start()

    def answer(self, request):
        sender = request.get_response_sender()
        array = request.inputs()[0].as_numpy()
        if array[0, 0] < 0:
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("below zero")), 1)
            return
        for number in range(int(array[0, 0])):
            tensor = pb_utils.Tensor("OUT", np.array([[number]], dtype=np.float32))
            sender.send(pb_utils.InferenceResponse([tensor]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
CONTEXT = """
class TritonPythonModel:
    def execute(self, requests):
        (r,) = requests
        seen = [r.request_id(), r.correlation_id(), r.flags(), r.timeout(), r.parameters()]
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError(repr(seen)))]
"""


@pytest.fixture
def calling(started, models, repository, monkeypatch):
    """Asks the model that calls others."""
    repository.identity("onnx", dims=(-1,), extra="dynamic_batching { }")
    models.add("caller", CALLER, wire="FP32", dims="-1")
    models.add(
        "repeat", REPEAT, wire="FP32", dims="-1", extra="model_transaction_policy { decoupled: true }\n"
    )
    models.add("context", CONTEXT, wire="FP32", dims="-1")
    models.add(
        "raising", CONTEXT.replace("(r,) = requests", 'raise ValueError("as asked")'), wire="FP32", dims="-1"
    )
    server = started(repository)

    def ask(what, *values):
        shape = [1, len(values)]
        body = {
            "inputs": [{"name": "IN", "datatype": "FP32", "shape": shape, "data": list(values)}],
            "parameters": {"what": what},
        }
        answer = server.infer("caller", body)
        return answer.json["outputs"][0]["data"] if answer.status == 200 else answer.error

    return ask


def test_models_call_models(calling):
    assert calling("onnx", 1.5, 2.5) == [1.5, 2.5]
    assert calling("many", 1.0) == [36.0]
    assert calling("stream", 3.0) == [0.0, 1.0, 2.0]
    assert calling("stream_async", 4.0) == [0.0, 1.0, 2.0, 3.0]
    assert calling("stream_async", 0.0) == []
    assert calling("plain_stream", 4.0) == [4.0]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda value: calling("onnx", value), [float(n) for n in range(24)])) == [
            [float(n)] for n in range(24)
        ]


def test_what_goes_wrong_in_calls_is_told(calling):
    start = (
        "Model nope - Error when running inference: Failed for execute the inference request. Model 'nope'"
    )
    assert f"{start} is not ready." in calling("nope", 1.0)
    assert "unexpected inference output 'OTHER' for model 'onnx'" in calling("output", 1.0)
    assert "data-type is 'INT64', but model 'onnx' expects 'FP32'" in calling("type", 1.0)
    assert "Please use 'decoupled=True' argument" in calling("decoupled", 1.0)
    assert "message: ValueError: as asked" in calling("raises", 1.0)
    assert "TritonModelException: below zero" in calling("stream", -1.0)
    assert "explicit model load / unload is not allowed" in calling("load", 1.0)
    assert calling("ready", 1.0) == [1.0, 1.0, 0.0, 0.0]


def test_context_goes_along_with_calls(calling):
    assert repr(["r", 4, 1, 9, json.dumps({"k": "v", "n": 1}, separators=(",", ":"))]) in calling(
        "context", 1.0
    )


def test_metrics_of_models_are_shown_and_go_with_them(started, models, repository, one, processes):
    models.add(
        "measuring",
        """
        class TritonPythonModel:
            def initialize(self, args):
                kind = pb_utils.MetricFamily
                self.family = kind(name="my_count", description="counts", kind=kind.COUNTER)
                self.count = self.family.Metric(labels={"who": 'a"b'})
                self.level = kind("my_level", "goes up and down", kind.GAUGE).Metric()
                self.times = kind("my_times", "spread", kind.HISTOGRAM).Metric(labels={}, buckets=[1.0, 2.5])
                pb_utils.Logger.log_warn("a line of the model")
                pb_utils.Logger.log("a quiet line", pb_utils.Logger.VERBOSE)

            def execute(self, requests):
                value = float(requests[0].inputs()[0].as_numpy()[0, 0])
                if value == -1:
                    os._exit(1)
                if value == -2:
                    self.level.observe(1)
                if value == -3:
                    self.count.increment(-1)
                if value == -4:
                    pb_utils.MetricFamily(name="my_count", description="x", kind=pb_utils.MetricFamily.GAUGE)
                self.count.increment(value)
                self.level.set(value)
                self.level.increment(0.5)
                self.times.observe(value)
                out = np.array([[self.count.value() + 10 * self.level.value()]], dtype=np.float64)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)])]
        """,
    )
    server = started(repository)

    def shown():
        text = server.ask("GET", "/metrics", port=server.ports["metrics"]).body.decode()
        return [line for line in text.splitlines() if "my_" in line]

    assert server.infer("measuring", one(2)).json["outputs"][0]["data"] == [27.0]
    assert server.infer("measuring", one(1)).status == 200
    lines = shown()
    for line in (
        "# HELP my_count counts",
        "# TYPE my_count counter",
        'my_count{who="a\\"b"} 3',
        "# TYPE my_level gauge",
        "my_level 1.5",
        "# TYPE my_times histogram",
        "my_times_count 2",
        "my_times_sum 3",
        'my_times_bucket{le="1"} 1',
        'my_times_bucket{le="2.5"} 2',
        'my_times_bucket{le="+Inf"} 2',
    ):
        assert line in lines
    assert (
        "TRITONSERVER_METRIC_KIND_GAUGE does not support Observe" in server.infer("measuring", one(-2)).error
    )
    assert "can only be incremented monotonically" in server.infer("measuring", one(-3)).error
    assert "metric family 'my_count' exists already" in server.infer("measuring", one(-4)).error
    assert server.infer("measuring", one(-1)).status == 500
    processes[1](lambda: server.infer("measuring", one(0)).status == 200)
    assert 'my_count{who="a\\"b"} 0' in shown()
    log = server.log.read_text()
    assert "a line of the model" in log
    assert "a quiet line" not in log


ASKING = """
CASES = [
    ({"model_version": "1"}, "model_version must be an int, not str"),
    ({"timeout": 1.5}, "timeout must be an int, not float"),
    ({"request_id": 7}, "request_id must be a str, not int"),
    ({"model_name": b"asked"}, "model_name must be a str, not bytes"),
    ({"requested_output_names": "OUT"}, "requested_output_names must be a list of names, not one name"),
    ({"model_version": np.int64(1), "timeout": np.uint32(9), "flags": np.int8(0)}, ""),
]

class TritonPythonModel:
    def execute(self, requests):
        for given, expected in CASES:
            (tensor,) = requests[0].inputs()
            given = {"model_name": "asked", "requested_output_names": ["OUT"], "inputs": [tensor], **given}
            try:
                response = pb_utils.InferenceRequest(**given).exec()
                told = response.error().message() if response.has_error() else ""
            except TypeError as exc:
                told = str(exc)
            assert told == expected, (told, expected)
        # What no model can say by this API, as a bug of it might.
        from repobuild_serve.python_child.current import host
        head = host().ask({"op": "infer", "model": []}).get()[0]
        assert "KeyError" in head["error"][1], head
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", requests[0].inputs()[0].as_numpy())])]
"""


def test_a_wrong_argument_of_a_call_is_told_and_harms_nobody(started, models, repository, one, identity):
    models.add("asked", identity)
    models.add("asking", ASKING)
    server = started(repository)
    for _ in range(2):
        answer = server.infer("asking", one())
        assert answer.status == 200, answer.body


def test_names_of_the_server_s_own_metrics_are_not_for_models(started, models, repository, one):
    models.add(
        "counting",
        """
        class TritonPythonModel:
            def execute(self, requests):
                try:
                    pb_utils.MetricFamily("nv_inference_count", "mine", pb_utils.MetricFamily.COUNTER)
                except pb_utils.TritonModelException as exc:
                    error = pb_utils.TritonError(str(exc))
                    return [pb_utils.InferenceResponse(error=error) for _ in requests]
        """,
    )
    server = started(repository)
    assert server.infer("counting", one()).error.endswith(
        "metric family 'nv_inference_count' has a name that is kept for the server's own metrics"
    )
    page = server.ask("GET", "/metrics", port=server.ports["metrics"]).body.decode()
    assert page.count("# TYPE nv_inference_count ") == 1
