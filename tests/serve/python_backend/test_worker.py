"""Instances of python models, without a server around them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import pytest

from repobuild_serve.backends.model_backend import Opening
from repobuild_serve.backends.python import asking as asking_module
from repobuild_serve.backends.python import process as process_module
from repobuild_serve.backends.python.backend import PythonBackend
from repobuild_serve.config.complete import resolve_instances
from repobuild_serve.config.settings import settings_from
from repobuild_serve.core.internal import InternalCalls
from repobuild_serve.core.router import Router
from repobuild_serve.core.services import Services
from repobuild_serve.core.ticket import Context, Ticket
from repobuild_serve.errors import LoadError
from repobuild_serve.profile import PROFILES
from repobuild_serve.repository import read_model
from repobuild_serve.scheduling.forming import Batch

DECOUPLED = """
import json
import threading

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            what = json.loads(request.parameters()).get("what", "count")
            sender = request.get_response_sender()
            if what == "count":
                threading.Thread(target=self.count, args=(request, sender)).start()
            elif what == "keep":
                self.kept = sender
            elif what == "raise":
                sender.send(self.response(1))
                raise ValueError("in the middle")
            elif what == "closed":
                sender.send(self.response(1), 1)
                raise ValueError("after all was said")
            elif what == "more":
                sender.send(self.response(1), 1)
                try:
                    sender.send(self.response(2))
                except pb_utils.TritonModelException as exc:
                    self.refused = str(exc)
                    continue
            elif what == "refused":
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(self.refused)), 1)
            elif what == "list":
                return [self.response(1)]

    def response(self, number):
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[number]], dtype=np.int32))])

    def count(self, request, sender):
        last = int(request.inputs()[0].as_numpy()[0, 0])
        for number in range(last):
            sender.send(self.response(number), 1 if number == last - 1 else 0)
"""


class Everything:
    """Supervisor and sink that keep what they are told."""

    def __init__(self):
        self.outcomes = []
        self.responses = []
        self.states = []
        self.changed = asyncio.Event()

    def done(self, worker, batch, outcome):
        self.outcomes.append(outcome)
        for response in outcome.responses or ():
            self.respond(response)
        self.changed.set()

    def lost(self, worker, error):
        self.states.append(error.text)
        self.changed.set()

    def found(self, worker):
        self.states.append("found")
        self.changed.set()

    def respond(self, response):
        self.responses.append(response)
        self.changed.set()

    async def until(self, condition):
        async with asyncio.timeout(60):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def numbers(self):
        return [
            (
                r.error.text
                if r.error
                else int.from_bytes(r.outputs[0].data[:4], "little")
                if r.outputs
                else None,
                r.final,
            )
            for r in self.responses
        ]


@contextlib.asynccontextmanager
async def running(folder, *, profile="current", options=None):
    """An instance and who watches it."""
    loop = asyncio.get_running_loop()
    services = Services(
        loop, InternalCalls(loop, Router()), None, PROFILES[profile], {"python": options or {}}
    )
    found = read_model(folder.parent, auto_complete=False)
    resolve_instances(found.config)
    settings = settings_from(found.config, found.path)
    opening = Opening(settings, 1, folder / "model.py", settings.instance_names[0], services)
    worker = await asyncio.to_thread(PythonBackend().worker, opening)
    everything = Everything()
    try:
        yield worker, everything, loop
    finally:
        worker.stop()
        worker.stop()
        await asyncio.sleep(0)
        if worker.busy() and worker.process.child is not None:
            # A model that keeps a response sender would never come to its end.
            worker.process.child.kill()
        if services.endings:
            await asyncio.wait(services.endings)


def ticket(number, value, what="count"):
    context = Context(parameters={"what": what})
    return Ticket(number, 1, 0, [value.to_bytes(4, "little", signed=True)], [(1,)], context=context)


def ask(worker, *tickets):
    worker.submit(Batch(list(tickets), len(tickets), open=False))


@pytest.fixture
def decoupled(models):
    return models.add("many", DECOUPLED, extra="model_transaction_policy { decoupled: true }\n")


def test_decoupled_models_answer_any_number_of_times(decoupled):
    async def run():
        async with running(decoupled) as (worker, seen, loop):
            worker.start(loop, seen, seen)
            ask(worker, ticket(5, 3))
            await seen.until(lambda: not worker.busy() and seen.outcomes)
            assert [response.number for response in seen.responses] == [5, 5, 5]
            assert seen.numbers() == [(0, False), (1, False), (2, True)]
            assert seen.outcomes[0].responses == []

    asyncio.run(run())


def test_requests_stay_in_flight_until_the_last_response(decoupled):
    async def run():
        async with running(decoupled) as (worker, seen, loop):
            worker.start(loop, seen, seen)
            ask(worker, ticket(1, 0, "keep"))
            await seen.until(lambda: seen.outcomes)
            assert worker.busy()
            # The sender that was kept is let go of for another one.
            ask(worker, ticket(2, 0, "keep"))
            await seen.until(lambda: seen.responses)
            ((text, final),) = seen.numbers()
            assert "let go of the response sender" in text
            assert final

    asyncio.run(run())


def test_an_instance_that_is_to_go_sends_the_responses_it_owes_first(models):
    folder = models.add(
        "many",
        """
        import threading, time

        class TritonPythonModel:
            def execute(self, requests):
                for request in requests:
                    threading.Thread(target=self.answer, args=(request.get_response_sender(),)).start()

            def answer(self, sender):
                while not os.path.exists(os.path.join(os.path.dirname(__file__), "go")):
                    time.sleep(0.01)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[7]], np.int32))]))
                sender.send(flags=1)
        """,
        extra="model_transaction_policy { decoupled: true }\n",
    )

    async def run():
        async with running(folder) as (worker, seen, loop):
            child = worker.process.child
            worker.start(loop, seen, seen)
            ask(worker, ticket(1, 0))
            await seen.until(lambda: seen.outcomes)
            worker.stop()
            await asyncio.sleep(0.1)
            assert not worker.gone()
            (folder / "go").touch()
            await seen.until(lambda: not worker.busy())
            assert seen.numbers() == [(7, False), (None, True)]
            await child.ended
            assert worker.gone()
            assert seen.states == []

    asyncio.run(run())


def test_an_instance_that_owes_responses_goes_with_its_process(decoupled):
    async def run():
        async with running(decoupled) as (worker, seen, loop):
            worker.start(loop, seen, seen)
            ask(worker, ticket(1, 0, "keep"))
            await seen.until(lambda: seen.outcomes)
            worker.stop()
            await asyncio.sleep(0)
            os.kill(worker.process.child.pid, signal.SIGKILL)
            await seen.until(lambda: seen.responses)
            assert seen.numbers() == [("Stub process 'many_0_0' is not healthy.", True)]
            await asyncio.sleep(0)
            assert worker.gone()
            assert not worker.process.restarting

    asyncio.run(run())


def test_errors_of_decoupled_models(decoupled):
    async def run():
        async with running(decoupled) as (worker, seen, loop):
            worker.start(loop, seen, seen)
            ask(worker, ticket(1, 0, "raise"), ticket(2, 0, "count"))
            await seen.until(lambda: seen.outcomes)
            text = seen.outcomes[0].error.text
            assert "ValueError: in the middle" in text
            assert seen.numbers() == [(1, False), (text, True), (text, True)]
            seen.responses.clear()
            ask(worker, ticket(3, 0, "closed"))
            await seen.until(lambda: len(seen.outcomes) == 2)
            assert seen.numbers() == [(1, True)]
            seen.responses.clear()
            ask(worker, ticket(4, 0, "list"))
            await seen.until(lambda: len(seen.outcomes) == 3)
            assert "must return None" in seen.outcomes[2].error.text
            seen.responses.clear()
            ask(worker, ticket(5, 0, "more"))
            await seen.until(lambda: len(seen.outcomes) == 4)
            ask(worker, ticket(6, 0, "refused"))
            await seen.until(lambda: len(seen.outcomes) == 5)
            refused = "Unable to send response. Response sender has been closed."
            assert seen.numbers()[-2:] == [(1, True), (refused, True)]
            assert not worker.busy()

    asyncio.run(run())


def test_a_crash_answers_what_is_in_flight_and_the_process_comes_back(decoupled):
    async def run():
        async with running(decoupled) as (worker, seen, loop):
            worker.start(loop, seen, seen)
            ask(worker, ticket(1, 0, "keep"))
            await seen.until(lambda: seen.outcomes)
            pid = worker.process.child.pid
            os.kill(pid, signal.SIGKILL)
            await seen.until(lambda: "found" in seen.states)
            text = "Stub process 'many_0_0' is not healthy."
            assert seen.states == [text, "found"]
            assert seen.numbers() == [(text, True)]
            assert not worker.busy()
            assert worker.process.child.pid != pid
            ask(worker, ticket(2, 1))
            await seen.until(lambda: len(seen.responses) == 2)
            assert seen.numbers()[1] == (0, True)

    asyncio.run(run())


def test_legacy_starts_no_process_again(decoupled):
    async def run():
        async with running(decoupled, profile="24.10") as (worker, seen, loop):
            worker.start(loop, seen, seen)
            os.kill(worker.process.child.pid, signal.SIGKILL)
            await seen.until(lambda: seen.states)
            await asyncio.sleep(0.05)
            assert not worker.process.restarting
            assert seen.states == ["Stub process 'many_0_0' is not healthy."]
            assert worker.check() is None

    asyncio.run(run())


def test_starts_that_fail_are_further_and_further_apart(models, monkeypatch):
    folder = models.add(
        "frail",
        """
        class TritonPythonModel:
            def initialize(self, args):
                if os.path.exists(os.path.join(os.path.dirname(__file__), "broken")):
                    raise ValueError("broken")

            def execute(self, requests):
                pass
        """,
    )
    pauses = []
    sleep = asyncio.sleep

    async def noted(seconds):
        if seconds != 0 or pauses:
            pauses.append(seconds)
        if len(pauses) == 9:
            (folder / "broken").unlink()
        await sleep(0)

    async def run():
        async with running(folder) as (worker, seen, loop):
            worker.start(loop, seen, seen)
            (folder / "broken").touch()
            monkeypatch.setattr(process_module.asyncio, "sleep", noted)
            os.kill(worker.process.child.pid, signal.SIGKILL)
            await seen.until(lambda: "found" in seen.states)
            monkeypatch.undo()
            assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("body", "ready"),
    [("return True", True), ("return False", False), ("return 1", False), ("raise ValueError('no')", False)],
    ids=["yes", "no", "number", "raises"],
)
def test_a_model_says_whether_it_is_ready(models, body, ready):
    folder = models.add(
        "saying",
        f"""
        class TritonPythonModel:
            def execute(self, requests):
                pass

            def is_ready(self):
                {body}
        """,
    )

    async def run():
        async with running(folder) as (worker, _, _loop):
            assert await worker.check()() is ready

    asyncio.run(run())


def test_a_model_that_does_not_say_in_time_is_not_ready(models, monkeypatch):
    folder = models.add(
        "slow",
        """
        import time

        class TritonPythonModel:
            def execute(self, requests):
                pass

            def is_ready(self):
                time.sleep(600)
        """,
    )
    monkeypatch.setattr(asking_module, "_SECONDS", 0.05)

    async def run():
        async with running(folder) as (worker, _, _loop):
            assert not await worker.check()()

    asyncio.run(run())


def test_initialize_may_take_longer_than_a_process_to_start(models):
    folder = models.add(
        "late",
        """
        import time

        class TritonPythonModel:
            def initialize(self, args):
                time.sleep(5.5)

            def execute(self, requests):
                pass
        """,
    )

    async def run():
        async with running(folder, options={"stub-timeout-seconds": "5"}) as (worker, _, _loop):
            assert worker.process.usable
            assert worker.check() is None

    asyncio.run(run())


def test_a_wrong_time_limit_is_refused(models, identity):
    folder = models.add("m", identity)

    async def run(text):
        async with running(folder, options={"stub-timeout-seconds": text}):
            pass

    for text in ("0", "-1", "soon"):
        with pytest.raises(LoadError, match="must be a positive integer"):
            asyncio.run(run(text))


def test_a_wrong_parameter_is_refused(models, identity):
    extra = 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "maybe" } }\n'
    folder = models.add("m", identity, extra=extra)

    async def run():
        async with running(folder):
            pass

    with pytest.raises(LoadError, match="Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS"):
        asyncio.run(run())


def test_a_child_that_writes_nonsense_into_its_socket_is_replaced(models):
    folder = models.add(
        "rude",
        """
        import socket

        class TritonPythonModel:
            def execute(self, requests):
                from repobuild_serve.python_child import current

                current.host().main._socket.sendall(b"\\xff" * 64)
                return [pb_utils.InferenceResponse() for request in requests]
        """,
    )

    async def run():
        async with running(folder) as (worker, seen, loop):
            worker.start(loop, seen, seen)
            ask(worker, ticket(1, 0))
            await seen.until(lambda: "found" in seen.states)
            assert seen.outcomes[0].error.text == "Stub process 'rude_0_0' is not healthy."

    asyncio.run(run())


def test_an_end_that_takes_too_long_is_cut_short(models, monkeypatch):
    folder = models.add(
        "clinging",
        """
        import time

        class TritonPythonModel:
            def execute(self, requests):
                pass

            def finalize(self):
                time.sleep(600)
        """,
    )
    monkeypatch.setattr(process_module, "_FINALIZE_SECONDS", 0.2)

    async def run():
        async with running(folder) as (worker, _, _loop):
            child = worker.process.child
            assert not worker.gone()
        assert child.ended.done()
        assert worker.gone()

    asyncio.run(run())
