"""Requests on their way through ensembles, with members that are plain functions."""

from __future__ import annotations

import asyncio
import time
import weakref
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repobuild_serve.config.complete import complete_config
from repobuild_serve.config.parse import parse_text
from repobuild_serve.config.settings import EnsembleStep, settings_from
from repobuild_serve.core.execution import Executor
from repobuild_serve.core.internal import InternalCalls
from repobuild_serve.core.model import ModelVersion
from repobuild_serve.core.readiness import READY
from repobuild_serve.core.router import Router
from repobuild_serve.core.services import Services
from repobuild_serve.core.statistics import Statistics, Timing
from repobuild_serve.core.ticket import NO_CONTEXT, Context, Response, Tensor
from repobuild_serve.datatypes import BY_WIRE_NAME
from repobuild_serve.ensembles.flow import Flow
from repobuild_serve.ensembles.graph import Graph
from repobuild_serve.ensembles.runner import EnsembleRunner
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.messages import model_config_class
from repobuild_serve.profile import CURRENT
from repobuild_serve.scheduling.direct import DirectFormer
from repobuild_serve.scheduling.scheduler import Scheduler
from repobuild_serve.scheduling.workers import ThreadWorker
from repobuild_serve.wire.checking import ticket_of

FP32 = BY_WIRE_NAME["FP32"]
NOTHING = Timing(0, 0, 0, 0)


def tensors_text(role: str, names: str, more: str = "") -> str:
    return "".join(
        f'{role} {{ name: "{name}" data_type: TYPE_FP32 dims: [ -1 ] {more} }}\n' for name in names.split()
    )


def step(model: str, inputs: str, outputs: str) -> str:
    """``a=A`` maps the member's ``a`` to the ensemble's ``A``."""
    maps = [
        f'{role}_map {{ key: "{key}" value: "{value}" }}'
        for role, pairs in (("input", inputs), ("output", outputs))
        for key, value in (pair.split("=") for pair in pairs.split())
    ]
    return f'step {{ model_name: "{model}" model_version: -1 {" ".join(maps)} }}\n'


def settings(name: str, text: str) -> Any:
    config = parse_text(text, Path("config.pbtxt"), model_config_class()())
    config.name = name
    complete_config(config, 1)
    return settings_from(config, Path(name))


class Instance:
    def __init__(self, function, outputs):
        self.function, self.outputs = function, outputs

    def run(self, inputs):
        result = self.function(**inputs)
        return [result[name] for name in self.outputs]

    def close(self):
        pass


class Streaming:
    """Runs requests of a decoupled member: a function from a request to its responses."""

    def __init__(self, function, took, late):
        self.function, self.took, self.late = function, took, late

    def start(self, loop, sink):
        self.loop, self.sink = loop, sink

    def submit(self, ticket):
        def run():
            if not self.late:
                ticket.timing = self.took
            for tensors, final in self.function(ticket):
                void = tensors is None
                self.sink.respond(Response(ticket.number, tensors or (), final=final, void=void))
            self.loop.call_soon(self.sink.ran, ticket.number, self.took)

        self.loop.call_soon(run)

    def pending(self):
        return 0

    def busy(self):
        return False

    def ready(self):
        return True

    def readiness(self):
        return READY

    def close(self):
        pass

    def gone(self):
        return True


@dataclass
class Members:
    """A directory of models that are functions."""

    models: dict[str, Any] = field(default_factory=dict)
    router: Router = field(default_factory=Router)

    def find(self, name: str, version: str) -> ModelVersion:
        if name not in self.models or version not in ("", "1"):
            raise RequestError(f"Request for unknown model: '{name}' is not found", Code.NOT_FOUND)
        return self.models[name]

    async def load(self, name, parameters):
        raise AssertionError

    async def unload(self, name, *, dependents=False):
        raise AssertionError

    def member(self, name: str, function: Any, inputs: str, outputs: str, *, batch: int = 8, more: str = ""):
        text = (
            f'backend: "function"\nmax_batch_size: {batch}\n'
            + tensors_text("input", inputs, more)
            + tensors_text("output", outputs)
        )
        model = settings(name, text)
        statistics = Statistics()
        worker = ThreadWorker(f"{name}_0", Instance(function, outputs.split()), Executor(model))
        runner = Scheduler(DirectFormer(), [worker], statistics, batched=model.batched)
        self.models[name] = ModelVersion(model, 1, runner, [()] * 9, statistics, 0)

    def streaming(
        self,
        name: str,
        function: Any,
        inputs: str,
        outputs: str,
        *,
        batch: int = 0,
        took: Timing = NOTHING,
        late: bool = True,
    ):
        text = (
            f'backend: "function"\nmax_batch_size: {batch}\nmodel_transaction_policy {{ decoupled: true }}\n'
            + tensors_text("input", inputs)
            + tensors_text("output", outputs)
        )
        self.models[name] = ModelVersion(
            settings(name, text), 1, Streaming(function, took, late), [()] * 9, Statistics(), 0
        )


def tensor(name: str, values: list[float], rows: int | None = 1) -> Tensor:
    shape = (len(values),) if rows is None else (rows, len(values) // rows)
    return Tensor(name, FP32, shape, np.array(values, "<f4").tobytes())


def values(response: Response) -> dict[str, list[float]]:
    return {item.name: np.frombuffer(item.data, "<f4").tolist() for item in response.outputs}


def ask(
    members: Members,
    text: str,
    *inputs: Tensor,
    context: Context = NO_CONTEXT,
    statistics: Statistics | None = None,
) -> list[Response]:
    """One request to an ensemble; all its responses."""

    async def run():
        loop = asyncio.get_running_loop()
        calls = InternalCalls(loop, members.router)
        services = Services(loop, calls, members, CURRENT, {})
        model = settings("ens", 'platform: "ensemble"\n' + text)
        counted = statistics or Statistics()
        ensemble = ModelVersion(model, 1, EnsembleRunner(model, services, counted), [()] * 9, counted, 0)
        for version in (*members.models.values(), ensemble):
            version.start(loop, members.router)
        responses: list[Response] = []
        over = loop.create_future()

        def receive(response):
            responses.append(response)
            if response.final:
                over.set_result(None)

        calls.call(ensemble, ticket_of(ensemble.plan, inputs, context=context), receive)
        await asyncio.wait_for(over, 10)
        await asyncio.sleep(0.02)
        assert not ensemble.busy()
        for version in members.models.values():
            version.close()
        return responses

    return asyncio.run(run())


@pytest.fixture
def members():
    found = Members()
    found.member("double", lambda x: {"y": 2 * x}, "x", "y")
    found.member("sum", lambda a, b: {"c": a + b}, "a b", "c")
    found.member("split", lambda x: {"p": x + 1, "q": x + 10}, "x", "p q")
    found.member("square", lambda x: {"y": x * x}, "x", "y", batch=0)
    return found


CHAIN = (
    "max_batch_size: 4\n"
    + tensors_text("input", "IN")
    + tensors_text("output", "OUT")
    + "ensemble_scheduling {"
    + step("double", "x=IN", "y=MIDDLE")
    + step("double", "x=MIDDLE", "y=OUT")
    + "}"
)
DIAMOND = (
    "max_batch_size: 4\n"
    + tensors_text("input", "IN")
    + tensors_text("output", "OUT P")
    + "ensemble_scheduling {"
    + step("split", "x=IN", "p=P q=Q")
    + step("double", "x=P", "y=P2")
    + step("double", "x=Q", "y=Q2")
    + step("sum", "a=P2 b=Q2", "c=OUT")
    + "}"
)


def test_a_chain(members):
    (response,) = ask(members, CHAIN, tensor("IN", [1, 2, 3, 4], rows=2))
    assert values(response) == {"OUT": [4, 8, 12, 16]}
    assert response.outputs[0].shape == (2, 2)
    assert response.final


def test_branches_that_join_and_an_output_that_is_also_an_input_of_a_step(members):
    (response,) = ask(members, DIAMOND, tensor("IN", [1]))
    assert values(response) == {"OUT": [26], "P": [2]}


def test_only_the_steps_that_are_needed_run(members):
    (response,) = ask(members, DIAMOND, tensor("IN", [1]), context=Context(outputs=("P",)))
    assert values(response) == {"P": [2]}
    counts = {name: model.statistics.execution_count for name, model in members.models.items()}
    assert counts == {"double": 0, "sum": 0, "split": 1, "square": 0}


def test_full_shapes_for_a_member_that_does_not_batch(members):
    text = (
        "max_batch_size: 0\n"
        + tensors_text("input", "IN")
        + tensors_text("output", "OUT")
        + "ensemble_scheduling {"
        + step("square", "x=IN", "y=OUT")
        + "}"
    )
    (response,) = ask(members, text, tensor("IN", [1, 2, 3], rows=None))
    assert values(response) == {"OUT": [1, 4, 9]}


def test_the_error_of_a_member_names_the_ensemble_and_keeps_its_status(members):
    def broken(x):
        raise RequestError("no such thing", Code.NOT_FOUND)

    members.member("double", broken, "x", "y")
    statistics = Statistics()
    (response,) = ask(members, CHAIN, tensor("IN", [1]), statistics=statistics)
    assert response.error is not None
    assert (response.error.text, response.error.code) == (
        "in ensemble 'ens', no such thing",
        Code.NOT_FOUND,
    )
    assert (statistics.fail.count, statistics.success.count) == (1, 0)


def test_a_tensor_that_a_member_cannot_take_is_refused_with_the_id_of_the_request(members):
    members.member("double", lambda x: {"y": 2 * x}, "x", "y", batch=1)
    (response,) = ask(members, CHAIN, tensor("IN", [1, 2], rows=2), context=Context(request_id="r"))
    assert response.error is not None
    assert response.error.text == (
        "in ensemble 'ens', [request id: r] inference request batch-size must be <= 1 for 'double'"
    )


def test_a_member_that_is_gone(members):
    del members.models["double"]
    (response,) = ask(members, CHAIN, tensor("IN", [1]))
    assert response.error is not None
    assert response.error.code is Code.NOT_FOUND
    assert response.error.text.startswith("in ensemble 'ens', Request for unknown model: 'double'")


def test_what_the_request_says_goes_to_every_step(members):
    seen = []
    for name in ("double", "sum", "split"):
        runner = members.models[name]._runner
        submit = runner.submit

        def spy(ticket, submit=submit):
            seen.append((ticket.priority, ticket.timeout_ns, ticket.context))
            submit(ticket)

        runner.submit = spy
    context = Context("id", None, {"a": 1}, 7, 1)
    (response,) = ask(members, CHAIN, tensor("IN", [1]), context=context)
    assert [(c.request_id, c.parameters, c.correlation_id, c.flags) for _, _, c in seen] == [
        ("id", {"a": 1}, 7, 1)
    ] * 2
    assert response.parameters == {"sequence_id": 7, "sequence_start": True, "sequence_end": False}


def test_an_ensemble_keeps_statistics_of_its_own(members):
    statistics = Statistics()
    ask(members, CHAIN, tensor("IN", [1, 2], rows=2), statistics=statistics)
    assert (statistics.inference_count, statistics.execution_count) == (2, 1)
    infer = members.models["double"].statistics.compute_infer
    assert statistics.compute_infer.ns == infer.ns > 0
    assert statistics.compute_infer.count == 1
    assert statistics.success.count == 1
    assert list(statistics.batches) == [2]


def test_what_a_nested_ensemble_took_counts_for_the_outer_one(started, repository):
    """Its own time is not measured: it is the sum of what its members took."""
    repository.echo("slow", delay_ms=20)
    tensors = "".join(
        f'{role} {{ name: "{name}" data_type: TYPE_FP32 dims: [ 1 ] }}\n'
        for role, name in (("input", "IN"), ("output", "OUT"))
    )
    for name, member in (("inner", "slow"), ("outer", "inner")):
        steps = step(member, "IN=IN", "OUT=OUT")
        text = f'platform: "ensemble"\nmax_batch_size: 8\n{tensors}ensemble_scheduling {{ {steps} }}\n'
        (repository.config(name, text) / "1").mkdir()
    server = started(repository)
    body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [2, 1], "data": [1, 2]}]}
    assert server.infer("outer", body).status == 200
    models = ("slow", "inner", "outer")
    slow, inner, outer = [server.statistics(name)["inference_stats"] for name in models]
    for name in ("compute_input", "compute_infer", "compute_output"):
        assert slow[name] == inner[name] == outer[name]
    assert outer["compute_infer"]["ns"] >= 20_000_000


@pytest.mark.parametrize("late", [False, True], ids=["in time", "late"])
def test_what_a_decoupled_member_took_counts_whenever_its_execution_ends(members, late):
    """Also if its last response comes before the end of its execution, as with streams it usually does."""
    took = Timing(10, 12, 15, 19)
    members.streaming("repeat", repeat, "x", "n", took=took, late=late)
    statistics = Statistics()
    ask(members, STREAM, tensor("IN", [3], rows=None), statistics=statistics)
    squares = members.models["square"].statistics
    for name, own in (("compute_input", 2), ("compute_infer", 3), ("compute_output", 4)):
        counted = getattr(statistics, name)
        assert counted.count == 1
        assert counted.ns == getattr(squares, name).ns + own
        assert getattr(statistics.batches[1], name) == counted


@pytest.mark.parametrize("act", ["", "with_last"])
def test_every_ensemble_around_a_stream_has_its_compute_times(started, repository, act):
    repository.repeat("stream")
    tensors = "".join(
        f'{role} {{ name: "{name}" data_type: TYPE_INT32 dims: [ {dim} ] }}\n'
        for role, name, dim in (("input", "IN", -1), ("output", "OUT", 1))
    )
    for name, member in (("inner", "stream"), ("outer", "inner")):
        steps = step(member, "IN=IN", "OUT=OUT")
        text = f'platform: "ensemble"\n{tensors}ensemble_scheduling {{ {steps} }}\n'
        (repository.config(name, text) / "1").mkdir()
    server = started(repository)
    body = {"IN": [1, 2, 3], "act": act}
    assert server.ask("POST", "/v2/models/outer/generate_stream", body).body.count(b"data: ") == 3
    names = ("stream", "inner", "outer")
    deadline = time.monotonic() + 10
    while True:
        # An execution is counted a moment after its last response.
        member, inner, outer = [server.statistics(name)["inference_stats"] for name in names]
        if member["compute_infer"]["count"] or time.monotonic() > deadline:
            break
    for name in ("compute_input", "compute_infer", "compute_output"):
        assert member[name] == inner[name] == outer[name]
    assert member["compute_infer"]["ns"] > 0


def test_what_a_step_waits_is_no_waiting_of_the_ensemble(started, repository):
    """As with Triton: its queue is the time before its first step."""
    repository.echo("late", extra="dynamic_batching { max_queue_delay_microseconds: 300000 }")
    tensors = "".join(
        f'{role} {{ name: "{name}" data_type: TYPE_FP32 dims: [ 1 ] }}\n'
        for role, name in (("input", "IN"), ("output", "OUT"))
    )
    steps = step("late", "IN=IN", "OUT=OUT")
    text = f'platform: "ensemble"\nmax_batch_size: 8\n{tensors}ensemble_scheduling {{ {steps} }}\n'
    (repository.config("ens", text) / "1").mkdir()
    server = started(repository)
    body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
    assert server.infer("ens", body).status == 200
    late, ensemble = [server.statistics(name)["inference_stats"] for name in ("late", "ens")]
    assert late["queue"]["ns"] >= 300_000_000
    assert ensemble["success"]["ns"] - ensemble["queue"]["ns"] >= late["queue"]["ns"]


@pytest.mark.parametrize("given", ["A B", "A"])
def test_an_optional_input_that_is_left_out_is_left_out_of_the_step(members, given):
    members.member(
        "some",
        lambda a=None, b=None: {"c": (a if a is not None else 0) + (100 if b is None else b)},
        "a b",
        "c",
        more="optional: true",
    )
    text = (
        "max_batch_size: 4\n"
        + tensors_text("input", "A B", "optional: true")
        + tensors_text("output", "OUT")
        + "ensemble_scheduling {"
        + step("some", "a=A b=B", "c=OUT")
        + "}"
    )
    (response,) = ask(members, text, *[tensor(name, [1]) for name in given.split()])
    assert values(response) == {"OUT": [2 if "B" in given else 101]}


def repeat(ticket):
    """As many responses as the input says, numbered, and then the end."""
    (count,) = np.frombuffer(ticket.inputs[0], "<f4")
    for number in range(int(count)):
        yield [tensor("n", [number], rows=None)], False
    yield None, True


STREAM = (
    "max_batch_size: 0\nmodel_transaction_policy { decoupled: true }\n"
    + tensors_text("input", "IN")
    + tensors_text("output", "OUT SAME")
    + "ensemble_scheduling {"
    + step("repeat", "x=IN", "n=N")
    + step("square", "x=N", "y=OUT")
    + step("square", "x=IN", "y=SAME")
    + "}"
)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_every_response_of_a_decoupled_member_goes_its_own_way(members, count):
    members.streaming("repeat", repeat, "x", "n")
    *responses, last = ask(members, STREAM, tensor("IN", [count], rows=None))
    assert sorted(values(response)["OUT"][0] for response in responses) == [n * n for n in range(count)]
    assert all(values(response)["SAME"] == [count * count] for response in responses)
    assert not any(response.final for response in responses)
    assert last.final
    assert last.void
    # The step that does not follow from the stream runs once.
    assert members.models["square"].statistics.execution_count == count + 1


def test_a_decoupled_member_may_send_one_final_response(members):
    members.streaming("repeat", lambda ticket: [([tensor("n", [3], rows=None)], True)], "x", "n")
    response, last = ask(members, STREAM, tensor("IN", [2], rows=None))
    assert values(response) == {"OUT": [9], "SAME": [4]}
    assert last.void


def test_an_error_in_mid_stream_ends_the_request_once(members):
    def function(ticket):
        for number in range(4):
            yield [tensor("n", [number, 0] if number == 2 else [number], rows=None)], False
        yield None, True

    def picky(x):
        if x.size == 2:
            raise RequestError("two are too many")
        return {"y": x}

    members.streaming("repeat", function, "x", "n")
    members.member("square", picky, "x", "y", batch=0)
    responses = ask(members, STREAM, tensor("IN", [2], rows=None))
    assert [response.final for response in responses].count(True) == 1
    assert responses[-1].error is not None
    assert responses[-1].error.text == "in ensemble 'ens', two are too many"


def test_nested_streams(members):
    members.streaming("repeat", repeat, "x", "n")
    text = (
        "max_batch_size: 0\nmodel_transaction_policy { decoupled: true }\n"
        + tensors_text("input", "IN")
        + tensors_text("output", "OUT N")
        + "ensemble_scheduling {"
        + step("repeat", "x=IN", "n=N")
        + step("repeat", "x=N", "n=OUT")
        + "}"
    )
    *responses, last = ask(members, text, tensor("IN", [4], rows=None))
    pairs = sorted((values(r)["N"][0], values(r)["OUT"][0]) for r in responses)
    assert pairs == [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    assert last.void


def test_a_stream_keeps_nothing_of_what_has_been_answered(members):
    """However long it is."""
    alive = []

    def function(ticket):
        for number in range(50):
            data = array("f", [number])
            alive.append(weakref.ref(data))
            yield [Tensor("m", FP32, (1,), data), tensor("n", [number], rows=None)], False
            del data
            # What is being sent, and what was sent just before.
            assert sum(reference() is not None for reference in alive) <= 2
        yield None, True

    members.streaming("repeat", function, "x", "m n")
    text = (
        "max_batch_size: 0\nmodel_transaction_policy { decoupled: true }\n"
        + tensors_text("input", "IN")
        + tensors_text("output", "OUT")
        + "ensemble_scheduling {"
        + step("repeat", "x=IN", "m=UNASKED n=OUT")
        + "}"
    )
    *responses, last = ask(members, text, tensor("IN", [1], rows=None))
    assert [values(response)["OUT"] for response in responses] == [[number] for number in range(50)]
    assert last.void


def test_a_step_without_its_output_is_told_as_a_deadlock(members):
    members.streaming("repeat", lambda ticket: [([], True)], "x", "n")
    text = STREAM.replace(step("square", "x=N", "y=OUT"), "").replace('"N"', '"OUT"')
    (response,) = ask(members, text, tensor("IN", [2], rows=None))
    assert response.error is not None
    assert "unexpected deadlock, at least one output is not set" in response.error.text


def test_what_is_remembered_of_requested_outputs_is_bounded():
    """Clients choose which outputs they want, out of more sets than memory holds."""
    names = [f"O{number}" for number in range(16)]
    graph = Graph(
        [EnsembleStep(f"m{index}", -1, {"x": "IN"}, {"y": name}) for index, name in enumerate(names)]
    )
    for bits in range(5000):
        wanted = [name for index, name in enumerate(names) if bits >> index & 1]
        assert graph.needed(wanted) == {index for index in range(16) if bits >> index & 1}
    assert len(graph._needed) <= 1024


def test_a_step_whose_response_cannot_be_taken_ends_the_request_with_an_error(members, monkeypatch, caplog):
    def fail(*_):
        raise ValueError("a bug")

    monkeypatch.setattr(Flow, "_row_of", fail)
    (response,) = ask(members, CHAIN, tensor("IN", [1.0]))
    assert response.error is not None
    assert response.error.code is Code.INTERNAL
    assert "the response of a step could not be taken" in caplog.text
    assert not any(version.busy() for version in members.models.values())
