"""How the errors of python models are told."""

from __future__ import annotations

import pytest

CASES = """
import json

def helper():
    raise KeyError("from helper")

class TritonPythonModel:
    def execute(self, requests):
        def fine():
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[7]], dtype=np.int32))])
        case = json.loads(requests[0].parameters())["case"]
        sender = requests[0].get_response_sender() if case.startswith("sender") else None
        if case == "raise":
            raise RuntimeError("boom")
        if case == "helper":
            helper()
        if case == "quiet":
            raise ValueError
        if case == "exit":
            raise SystemExit(3)
        if case == "few":
            return []
        if case == "none":
            return None
        if case == "number":
            return [5]
        if case == "tuple":
            return (fine(),)
        if case == "generator":
            return (fine() for _ in requests)
        if case == "not_found":
            error = pb_utils.TritonError("nowhere", pb_utils.TritonError.NOT_FOUND)
            return [pb_utils.InferenceResponse(error=error)]
        if case == "plain_error":
            return [pb_utils.InferenceResponse(error=pb_utils.TritonError("plainly"))]
        if case == "empty":
            return [pb_utils.InferenceResponse()]
        if case == "text":
            pb_utils.Tensor("OUT", np.array(["a"]))
        if case == "sender":
            sender.send(fine(), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return None
        if case == "sender_later":
            import threading
            threading.Timer(0.05, lambda: sender.send(fine(), 1)).start()
            return [None]
        if case == "sender_twice":
            sender.send(fine(), 1)
            sender.send(fine(), 1)
        if case == "sender_only_final":
            sender.send(flags=1)
        if case == "sender_and_list":
            sender.send(fine(), 1)
            return [fine()]
        if case == "sender_dropped":
            return [None]
        return [fine()]
"""
PREFIX = "Failed to process the request(s) for model 'cases_0_0', message: "


@pytest.fixture(scope="module")
def cases(serving, tmp_path_factory):
    path = tmp_path_factory.mktemp("cases") / "repository"
    folder = path / "cases" / "1"
    folder.mkdir(parents=True)
    code = "import numpy as np\nimport triton_python_backend_utils as pb_utils\n" + CASES
    (folder / "model.py").write_text(code)
    (folder.parent / "config.pbtxt").write_text(
        'backend: "python"\nmax_batch_size: 8\ninput [{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }]\n'
        'output [{ name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }]\ninstance_group [{ kind: KIND_CPU }]\n'
    )
    server = serving(path)

    def ask(case):
        inputs = [{"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [1]}]
        return server.infer("cases", {"inputs": inputs, "parameters": {"case": case}})

    yield ask, str(folder / "model.py"), code.splitlines()
    server.stop()


def line(lines, text):
    return next(number for number, found in enumerate(lines, 1) if text in found)


def test_an_exception_is_told_with_the_frames_of_the_model(cases):
    ask, path, lines = cases
    at = line(lines, '"boom"')
    assert ask("raise").error == f"{PREFIX}RuntimeError: boom\n\nAt:\n  {path}({at}): execute\n"
    inner, outer = line(lines, '"from helper"'), line(lines, "            helper()")
    assert ask("helper").error == (
        f"{PREFIX}KeyError: 'from helper'\n\nAt:\n  {path}({inner}): helper\n  {path}({outer}): execute\n"
    )
    at = line(lines, "raise ValueError")
    assert ask("quiet").error == f"{PREFIX}ValueError: <EMPTY MESSAGE>\n\nAt:\n  {path}({at}): execute\n"
    assert ask("exit").error.startswith(f"{PREFIX}SystemExit: 3\n\nAt:\n")
    assert ask("text").error.startswith(f"{PREFIX}TritonModelException: NumPy dtype is not supported.\n")


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (
            "few",
            (
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n"
            ),
        ),
        (
            "number",
            (
                "Expected an 'InferenceResponse' object in the execute function return list, found type "
                "'<class 'int'>'."
            ),
        ),
        ("tuple", "Expected a list in the execute return, found type '<class 'tuple'>'."),
        ("generator", "Expected a list in the execute return, found type '<class 'generator'>'."),
        (
            "none",
            (
                "The execute function returned no response to a request whose response sender was not "
                "taken either."
            ),
        ),
    ],
)
def test_what_execute_must_not_return(cases, case, text):
    answer = cases[0](case)
    assert (answer.status, answer.error) == (500, PREFIX + text)


def test_errors_of_single_requests_have_their_status(cases):
    ask = cases[0]
    for case, status, text in (("not_found", 404, "nowhere"), ("plain_error", 500, "plainly")):
        answer = ask(case)
        assert (answer.status, answer.error) == (status, text)


def test_an_empty_response_has_no_outputs(cases):
    assert cases[0]("empty").json["outputs"] == []


@pytest.mark.parametrize("case", ["sender", "sender_later", "sender_twice", "sender_and_list"])
def test_the_first_response_by_a_sender_is_the_answer(cases, case):
    assert cases[0](case).json["outputs"][0]["data"] == [7]


def test_a_sender_that_sends_nothing_is_an_error(cases):
    ask = cases[0]
    assert "cannot send complete final before sending a response" in ask("sender_only_final").error
    assert "let go of the response sender" in ask("sender_dropped").error
    assert ask("fine").status == 200
