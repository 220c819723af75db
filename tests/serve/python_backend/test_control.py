"""Python models that come and go, and let others do so."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

LOADER = """
class TritonPythonModel:
    def initialize(self, args):
        pb_utils.load_model("counted")
        tensor = pb_utils.Tensor("IN", np.array([[5]], dtype=np.int32))
        request = pb_utils.InferenceRequest(
            model_name="counted", inputs=[tensor], requested_output_names=["OUT"]
        )
        self.pid = request.exec().output_tensors()[0].as_numpy()

    def execute(self, requests):
        value = int(requests[0].inputs()[0].as_numpy()[0, 0])
        if value == 1:
            pb_utils.unload_model("counted")
        if value == 2:
            pb_utils.load_model("nowhere")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", self.pid)]) for request in requests]
"""
COUNTED = """
class TritonPythonModel:
    def initialize(self, args):
        family = pb_utils.MetricFamily("my_count", "counts", pb_utils.MetricFamily.COUNTER)
        self.count = family.Metric(labels={})

    def execute(self, requests):
        self.count.increment(1)
        pid = np.array([[os.getpid()]], dtype=np.int32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pid)]) for request in requests]
"""


def test_models_load_and_unload_models(started, models, repository, one, processes):
    alive, wait_until = processes
    models.add("loader", LOADER)
    models.add("counted", COUNTED)
    server = started(repository, "--model-control-mode=explicit")

    def metrics():
        return server.ask("GET", "/metrics", port=server.ports["metrics"]).body.decode()

    assert server.ask("POST", "/v2/repository/models/loader/load", b"").status == 200
    pid = server.infer("loader", one(0)).json["outputs"][0]["data"][0]
    assert alive(pid)
    assert "my_count 1\n" in metrics()
    assert "Failed to load model: " in server.infer("loader", one(2)).error
    assert server.infer("loader", one(1)).status == 200
    wait_until(lambda: not alive(pid))
    assert server.ask("GET", "/v2/models/counted/ready").status != 200
    wait_until(lambda: "my_count" not in metrics())
    assert server.ask("POST", "/v2/repository/models/counted/load", b"").status == 200
    assert server.infer("counted", one()).status == 200


def test_a_model_that_is_slow_to_start_can_be_waited_for_and_keeps_nobody_else(
    started, models, repository, one, identity
):
    slow = identity.replace(
        "    def execute",
        """    def initialize(self, args):
        import time
        while not os.path.exists(os.path.join(os.path.dirname(__file__), "go")):
            time.sleep(0.01)

    def execute""",
    )
    folder = models.add("slow", slow)
    models.add("fast", identity)
    server = started(repository, "--model-control-mode=explicit", "--load-model=fast")
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(server.ask, "POST", "/v2/repository/models/slow/load", b"")
        assert server.infer("fast", one(4)).json["outputs"][0]["data"] == [4]
        assert server.ask("GET", "/v2/models/slow/ready").status != 200
        (folder / "go").touch()
        assert loading.result().status == 200
    assert server.infer("slow", one(4)).json["outputs"][0]["data"] == [4]


def test_decoupled_models_stream(started, models, repository):
    models.add(
        "counting",
        """
        class TritonPythonModel:
            def execute(self, requests):
                for request in requests:
                    sender = request.get_response_sender()
                    for number in range(int(request.inputs()[0].as_numpy()[0])):
                        out = pb_utils.Tensor("OUT", np.array([number], dtype=np.int32))
                        sender.send(pb_utils.InferenceResponse([out]))
                    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """,
        batch=0,
        extra="model_transaction_policy { decoupled: true }\n",
    )
    server = started(repository)
    answer = server.ask("POST", "/v2/models/counting/generate_stream", {"IN": 3})
    events = [line for line in answer.body.decode().splitlines() if line.startswith("data: ")]
    assert [json.loads(event[6:])["OUT"] for event in events] == [0, 1, 2]
    body = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]}
    assert server.infer("counting", body).status == 501
