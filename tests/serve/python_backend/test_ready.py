"""``is_ready`` of models: asked by whoever wants to know whether they are ready."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

SAYING = """
class TritonPythonModel:
    def initialize(self, args):
        self.folder = os.path.join(os.path.dirname(__file__), "..", "..", "..")
        self.name = args["model_instance_name"]

    def execute(self, requests):
        tensor = pb_utils.Tensor("OUT", np.array([[os.getpid()]], dtype=np.int32))
        return [pb_utils.InferenceResponse([tensor]) for request in requests]

    def is_ready(self):
        import time
        with open(os.path.join(self.folder, "asked"), "a") as file:
            file.write(self.name + "\\n")
        while os.path.exists(os.path.join(self.folder, "hold")):
            time.sleep(0.01)
        return not os.path.exists(os.path.join(self.folder, self.name + ".no"))
"""
TWO = "instance_group [{ kind: KIND_CPU count: 2 }]\n"
MODEL, SERVER = "/v2/models/saying/ready", "/v2/health/ready"


class Said:
    """What the model is to say, and how often each instance was asked."""

    def __init__(self, folder):
        self.folder = folder

    def no(self, instance="saying_0_0"):
        (self.folder / f"{instance}.no").touch()

    def yes(self, instance="saying_0_0"):
        (self.folder / f"{instance}.no").unlink()

    def hold(self):
        (self.folder / "hold").touch()

    def let_go(self):
        (self.folder / "hold").unlink(missing_ok=True)

    def asked(self):
        file = self.folder / "asked"
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def said(models):
    told = Said(Path(models.path).parent)
    yield told
    told.let_go()


def config(more=""):
    return (
        'max_batch_size: 8\ninput [{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }]\n'
        f'output [{{ name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }}]\n{more}'
    )


def status(server, path=MODEL):
    answer = server.ask("GET", path)
    if answer.status != 200:
        assert answer.status == 400
        assert not answer.body or answer.error == "Model version not ready"
    return answer.status


def test_the_routes_ask_the_model_and_inference_does_not(started, models, repository, said, one):
    models.add("saying", SAYING)
    server = started(repository)
    assert said.asked() == []
    assert [status(server, path) for path in (MODEL, "/v2/models/saying/versions/1/ready", SERVER)] == [
        200
    ] * 3
    assert len(said.asked()) == 3
    said.no()
    assert [status(server), status(server, SERVER)] == [400, 400]
    assert server.ask("GET", SERVER).body == b""
    asked = len(said.asked())
    assert server.infer("saying", one()).status == 200
    (item,) = server.ask("POST", "/v2/repository/index").json
    assert item["state"] == "READY"
    assert len(said.asked()) == asked
    said.yes()
    assert [status(server), status(server, SERVER)] == [200, 200]


@pytest.mark.parametrize(
    ("body", "expected", "logged"),
    [
        ("def is_ready(self): return 1", 400, "is_ready() must return a boolean value"),
        ("def is_ready(self): return np.bool_(True)", 400, "is_ready() must return a boolean value"),
        ("def is_ready(self): raise ValueError('no database')", 400, "ValueError: no database"),
        ("async def is_ready(self): return True", 200, ""),
        ("async def is_ready(self): raise ValueError('no database')", 400, "ValueError: no database"),
        ("is_ready = None", 400, "TypeError"),
    ],
    ids=["number", "numpy", "raises", "coroutine", "raising_coroutine", "not_callable"],
)
def test_answers_that_are_not_plain_yes_or_no(
    started, models, repository, identity, one, body, expected, logged
):
    models.add("saying", f"{identity}\n    {body}\n")
    server = started(repository)
    assert [status(server) for _ in range(3)] == [expected] * 3
    assert server.infer("saying", one()).status == 200
    log = server.log.read_text()
    assert logged in log
    # Told once, not at every look.
    assert log.count("is_ready() failed") == (1 if logged else 0)


def test_all_instances_are_asked_and_one_no_is_enough(started, models, repository, said):
    models.add("saying", SAYING, config=config(TWO))
    server = started(repository)
    assert status(server) == 200
    assert sorted(said.asked()) == ["saying_0_0", "saying_0_1"]
    for instance in ("saying_0_0", "saying_0_1"):
        said.no(instance)
        assert [status(server), status(server, SERVER)] == [400, 400]
        said.yes(instance)
    assert status(server) == 200


def test_one_question_for_everybody_while_a_model_hangs(started, models, repository, said, one, processes):
    _, wait_until = processes
    models.add("saying", SAYING)
    models.add("other", SAYING.replace("is_ready", "is_not_asked"))
    server = started(repository)
    said.hold()
    with ThreadPoolExecutor(20) as pool:
        polls = [pool.submit(status, server, path) for path in (MODEL, SERVER) * 10]
        wait_until(said.asked)
        # Neither the model nor others are held up by it.
        assert server.infer("saying", one()).status == 200
        assert status(server, "/v2/models/other/ready") == 200
        # Nobody says so within the time limit.
        assert [poll.result() for poll in polls] == [400] * 20
        assert "is_ready() failed: no answer within 5 seconds" in server.log.read_text()
        polls = [pool.submit(status, server, path) for path in (MODEL, SERVER)]
        assert len(said.asked()) == 1
        said.let_go()
        # The late answer is for those who wait by then, and if they came too late for it, they ask anew.
        assert [poll.result() for poll in polls] == [200] * 2
    assert status(server) == 200
    assert len(said.asked()) <= 4


def test_many_requests_of_one_connection_are_answered_in_order(started, models, repository, said, processes):
    _, wait_until = processes
    models.add("saying", SAYING)
    server = started(repository)
    said.hold()
    asking = [f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" for path in (MODEL, "/v2", SERVER, "/v2/health/live")]
    with ThreadPoolExecutor(1) as pool:
        talk = pool.submit(server.talk, "".join(asking * 25).encode())
        wait_until(said.asked)
        said.let_go()
        answers = talk.result()
    assert answers.count(b"HTTP/1.1 200 OK") == 100
    empty = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    assert answers.startswith(empty + b"HTTP/1.1 200 OK\r\nContent-Type: application/json")
    # Those that reach the server after the first answer ask anew.
    assert len(said.asked()) < 50


def test_a_lost_instance_is_not_ready_and_others_serve_on(started, models, repository, said, one, processes):
    _, wait_until = processes
    broken = SAYING.replace(
        "        self.name =",
        "        if os.path.exists(os.path.join(self.folder, 'broken')):\n"
        "            raise ValueError('broken')\n        self.name =",
    )
    models.add("saying", broken, config=config(TWO))
    server = started(repository)
    (said.folder / "broken").touch()
    os.kill(server.infer("saying", one()).json["outputs"][0]["data"][0], signal.SIGKILL)
    wait_until(lambda: "could not be started again" in server.log.read_text())
    asked = len(said.asked())
    assert [status(server), status(server, SERVER)] == [400, 400]
    assert len(said.asked()) == asked
    assert server.infer("saying", one()).status == 200
    (said.folder / "broken").unlink()
    wait_until(lambda: status(server) == 200)


def test_a_crash_answers_the_question(started, models, repository, said, one, processes):
    _, wait_until = processes
    models.add("saying", SAYING)
    server = started(repository)
    pid = server.infer("saying", one()).json["outputs"][0]["data"][0]
    said.hold()
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(status, server)
        wait_until(said.asked)
        os.kill(pid, signal.SIGKILL)
        assert poll.result() == 400
    said.let_go()
    wait_until(lambda: status(server) == 200)
    assert "no answer within" not in server.log.read_text()


def test_an_unload_answers_the_question(started, models, repository, said, processes):
    _, wait_until = processes
    models.add("saying", SAYING)
    server = started(repository, "--model-control-mode=explicit", "--load-model=saying")
    said.hold()
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(status, server)
        wait_until(said.asked)
        assert server.ask("POST", "/v2/repository/models/saying/unload").status == 200
        assert poll.result() == 400
    assert server.ask("GET", MODEL).status == 404
    assert "no answer within" not in server.log.read_text()


def test_without_strictness_the_server_is_ready_whatever_models_say(started, models, repository, said):
    models.add("saying", SAYING)
    server = started(repository, "--strict-readiness=false")
    said.no()
    assert [status(server, SERVER), status(server)] == [200, 400]


def test_legacy_does_not_ask(started, models, repository, said, one, processes):
    _, wait_until = processes
    models.add("saying", SAYING)
    server = started(repository, "--compat=24.10")
    said.no()
    assert [status(server), status(server, SERVER)] == [200, 200]
    assert said.asked() == []
    os.kill(server.infer("saying", one()).json["outputs"][0]["data"][0], signal.SIGKILL)
    wait_until(lambda: server.infer("saying", one()).status == 500)
    assert [status(server), status(server, SERVER)] == [200, 200]


def test_ensembles_do_not_ask_their_members(started, models, repository, said, one):
    models.add("saying", SAYING)
    maps = 'input_map { key: "IN" value: "A" } output_map { key: "OUT" value: "B" }'
    step = f'{{ model_name: "saying" model_version: -1 {maps} }}'
    folder = repository.config(
        "whole",
        'platform: "ensemble"\nmax_batch_size: 8\ninput [{ name: "A" data_type: TYPE_INT32 dims: [ 1 ] }]\n'
        'output [{ name: "B" data_type: TYPE_INT32 dims: [ 1 ] }]\n'
        f"ensemble_scheduling {{ step [ {step} ] }}\n",
    )
    (folder / "1").mkdir()
    server = started(repository)
    said.no()
    assert [status(server, "/v2/models/whole/ready"), status(server), status(server, SERVER)] == [
        200,
        400,
        400,
    ]
    assert len(said.asked()) == 2
    body = {"inputs": [{"name": "A", "datatype": "INT32", "shape": [1, 1], "data": [1]}]}
    assert server.infer("whole", body).status == 200


CALLER = """
class TritonPythonModel:
    def execute(self, requests):
        tensor = pb_utils.Tensor("IN", np.array([[1]], dtype=np.int32))
        asked = pb_utils.InferenceRequest(
            model_name="saying", inputs=[tensor], requested_output_names=["OUT"], request_id="r"
        )
        response = asked.exec()
        text = response.error().message() if response.has_error() else "served"
        told = f"{pb_utils.is_model_ready('saying')} {pb_utils.is_model_ready('saying', '1')} {text}"
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError(told)) for request in requests]
"""
NOT_READY = (
    "Model saying - Error when running inference: Failed for execute the inference request. "
    "Model 'saying' is not ready."
)


@pytest.mark.parametrize(("compat", "no"), [("current", NOT_READY), ("24.10", "served")])
def test_python_models_that_ask_for_a_model_are_told_what_it_says(
    started, models, repository, said, one, compat, no
):
    models.add("saying", SAYING)
    models.add("caller", CALLER)
    server = started(repository, f"--compat={compat}")
    assert server.infer("caller", one()).error == "True True served"
    said.no()
    ready = compat != "current"
    assert server.infer("caller", one()).error == f"{ready} {ready} {no}"
    assert len(said.asked()) == (0 if ready else 6)
    said.yes()
    assert server.infer("caller", one()).error == "True True served"
