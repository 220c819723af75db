"""A model that fails to take a request: the request is answered, and nothing of it is kept."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from repobuild_serve.config.complete import complete_config
from repobuild_serve.config.parse import parse_text
from repobuild_serve.config.settings import settings_from
from repobuild_serve.core.internal import InternalCalls
from repobuild_serve.core.model import ModelVersion
from repobuild_serve.core.router import Router
from repobuild_serve.core.statistics import Statistics
from repobuild_serve.core.ticket import Answer, Ticket
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.http.budget import Budget
from repobuild_serve.http.front import FrontOptions
from repobuild_serve.http.generate import GenerateService
from repobuild_serve.http.infer import InferService
from repobuild_serve.http.limits import Limits
from repobuild_serve.http.parser import Request
from repobuild_serve.http.routes import Routes
from repobuild_serve.lifecycle import Models
from repobuild_serve.lifecycle.states import Record, State
from repobuild_serve.messages import model_config_class
from repobuild_serve.profile import CURRENT

CONFIG = """
backend: "none"
max_batch_size: 8
input [{ name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }]
"""
INFER = b'{"id":"7","inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[1.5]}]}'
GENERATE = b'{"id":"7","IN":[1.5]}'
INTERNAL = "internal error, see the server's log"


class Failing:
    """Takes a request, or raises what it is to raise."""

    def __init__(self):
        self.error = None
        self.tickets = []

    def submit(self, ticket):
        if self.error is not None:
            raise self.error
        self.tickets.append(ticket)


class Exchange:
    """An exchange and its connection, whose client reads everything."""

    reply = stream = None
    http10 = gone = close = False

    @property
    def connection(self):
        return self

    def write_only(self, exchange):
        return True

    def advance(self):
        if self.stream is not None:
            self.stream.take()


class Front:
    """The routes, with room for one request, which the failing model is asked for."""

    def __init__(self):
        config = parse_text(CONFIG, Path("config.pbtxt"), model_config_class()())
        config.name = "m"
        complete_config(config, 1)
        self.runner = Failing()
        version = ModelVersion(settings_from(config, Path("m")), 1, self.runner, [()], Statistics(), 0)
        models = Models()
        models.track("m").records[1] = Record(State.READY, version=version)
        limits = replace(Limits(), queued_requests=1)
        self.budget, self.router = Budget(limits.held_size), Router()
        infer = InferService(limits, self.budget, self.router, CURRENT)
        generate = GenerateService(limits, self.budget, self.router, CURRENT)
        self.routes = Routes(
            models, infer, generate, limits, "triton", CURRENT, FrontOptions(), strict_readiness=True
        )
        self.version = version

    def request(self, route, body):
        return Request(
            method=b"POST",
            target=b"/v2/models/m/" + route,
            headers={b"content-length": b"%d" % len(body)},
            body=body,
        )

    def infer(self):
        return self.routes.respond(self.request(b"infer", INFER), Exchange())

    def known(self):
        known = self.routes.known_head(self.request(b"infer", INFER))
        return known.begin(Exchange(), INFER)

    def generate(self):
        return self.routes.respond(self.request(b"generate", GENERATE), Exchange())

    def generate_stream(self):
        return self.routes.respond(self.request(b"generate_stream", GENERATE), Exchange())


WAYS = {"infer": INFER, "known": INFER, "generate": GENERATE, "generate_stream": GENERATE}


def told(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head[9:12]), json.loads(body)["error"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "error",
    [ValueError("a bug"), RequestError("no", Code.UNAVAILABLE, tagged=True), KeyboardInterrupt()],
    ids=["bug", "refusal", "interrupt"],
)
def test_nothing_is_kept_of_a_request_that_was_not_taken(way, error):
    front = Front()
    ask = getattr(front, way)
    for _ in range(3):
        front.runner.error = error
        if isinstance(error, RequestError):
            assert told(ask()) == (503, "[request id: 7] no")
        elif isinstance(error, ValueError) and WAYS[way] == INFER:
            assert told(ask()) == (500, INTERNAL)
        else:
            # The connection answers, as for every other bug in a route.
            with pytest.raises(type(error)):
                ask()
        assert front.budget.held == 0
    # There is room for one request, and it is free.
    front.runner.error = None
    assert ask() is None
    assert front.budget.held == len(WAYS[way])
    assert told(ask())[0] == 503
    (ticket,) = front.runner.tickets
    front.router.deliver(Answer([ticket.number], [1], error=RequestError("late")))
    assert front.budget.held == 0
    assert ask() is None


@pytest.mark.parametrize(
    ("error", "text"),
    [(ValueError("a bug"), INTERNAL), (RequestError("no"), "no")],
    ids=["bug", "refusal"],
)
def test_internal_requests_are_answered_whatever_is_raised(error, text, caplog):
    async def run():
        loop, router, front = asyncio.get_running_loop(), Router(), Front()
        calls = InternalCalls(loop, router)
        front.runner.error = error
        responses = []
        ticket = Ticket(0, 1, 0, [bytes(4)], [(1,)])
        calls.call(front.version, ticket, responses.append)
        assert responses == []
        await asyncio.sleep(0)
        (response,) = responses
        assert response.final
        assert response.error.text == text
        # It is forgotten: a second answer is for nobody, which is told.
        calls.respond(response)
        assert responses == [response]
        assert "sent a further response, with an error" in caplog.text

    asyncio.run(run())
