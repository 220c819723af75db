"""Swapping versions under load: no request fails, and each answer is of one version as a whole."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
import time
import weakref

import psutil
import pytest

from repobuild_serve.core.execution import Outcome
from repobuild_serve.core.readiness import READY, Readiness
from repobuild_serve.core.statistics import Statistics, Timing
from repobuild_serve.core.ticket import Ticket
from repobuild_serve.errors import RequestError
from repobuild_serve.scheduling.direct import DirectFormer
from repobuild_serve.scheduling.scheduler import Scheduler

EXPLICIT = "--model-control-mode=explicit"
ONE = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}]}


def write(repository, name, number, **options):
    """The model as its version number ``number`` only; the output is called after it, too."""
    repository.echo(name, **options)
    folder = repository.path / name
    config = folder / "config.pbtxt"
    config.write_text(config.read_text().replace('name: "OUT"', f'name: "OUT{number}"'))
    for old in folder.iterdir():
        if old.is_dir() and old.name != str(number):
            (old / "model.txt").unlink()
            old.rmdir()
    (folder / str(number)).mkdir(exist_ok=True)
    (folder / str(number) / "model.txt").write_text("fine")


class Client(threading.Thread):
    """Asks again and again on one connection, a few requests ahead, and keeps what is odd."""

    def __init__(self, server, body, ahead):
        super().__init__()
        self.server, self.ahead = server, ahead
        self.request = b"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        self.over = threading.Event()
        self.seen, self.odd, self.count = set(), [], 0

    def run(self):
        with self.server.connect() as connection, connection.makefile("rb") as stream:
            while not self.over.is_set():
                connection.sendall(self.request * self.ahead)
                for _ in range(self.ahead):
                    self.take(stream)

    def take(self, stream):
        status = stream.readline()
        size = 0
        while (line := stream.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        document = json.loads(stream.read(size))
        self.count += 1
        version = document.get("model_version")
        names = [item["name"] for item in document.get("outputs", [])]
        if b" 200 " not in status or names != [f"OUT{version}"]:
            self.odd.append((status, document))
        self.seen.add(version)


@pytest.mark.parametrize("batching", ["", "dynamic_batching { max_queue_delay_microseconds: 500 }"])
def test_no_request_fails_while_versions_are_swapped(started, repository, batching):
    write(repository, "m", 1, extra=batching, count=2)
    server = started(repository, EXPLICIT, "--load-model=m")
    body = json.dumps(ONE).encode()
    clients = [Client(server, body, ahead) for ahead in (1, 1, 2, 4, 8, 1)]
    for client in clients:
        client.start()
    try:
        for number in range(2, 34):
            write(repository, "m", number, extra=batching, count=1 + number % 3)
            assert server.ask("POST", "/v2/repository/models/m/load").status == 200
            until = time.monotonic() + 30
            while not all(str(number) in client.seen or client.odd for client in clients):
                assert time.monotonic() < until
                time.sleep(0.002)
    finally:
        for client in clients:
            client.over.set()
        for client in clients:
            client.join()
    assert [client.odd for client in clients] == [[]] * len(clients)
    assert all(client.seen >= {str(number) for number in range(2, 34)} for client in clients)
    assert "Traceback" not in server.log.read_text()


def test_no_request_fails_while_instances_come_and_go(started, repository):
    write(repository, "m", 1, delay_ms=2, extra="dynamic_batching { }")
    server = started(repository, EXPLICIT, "--load-model=m")
    config = repository.path / "m" / "config.pbtxt"
    text = config.read_text()
    clients = [Client(server, json.dumps(ONE).encode(), ahead) for ahead in (1, 2, 4, 8)]
    for client in clients:
        client.start()
    try:
        for number in range(30):
            config.write_text(text.replace("count: 1", f"count: {1 + number * 7 % 5}"))
            assert server.ask("POST", "/v2/repository/models/m/load").status == 200
    finally:
        for client in clients:
            client.over.set()
        for client in clients:
            client.join()
    assert [client.odd for client in clients] == [[]] * len(clients)
    assert server.statistics("m")["inference_count"] == sum(client.count for client in clients)
    assert server.log.read_text().count("loaded 'm' version 1") == 1


def test_a_header_that_was_met_before_means_the_new_version(started, repository):
    write(repository, "m", 1)
    server = started(repository, EXPLICIT, "--load-model=m")
    client = Client(server, json.dumps(ONE).encode(), 1)
    with server.connect() as connection, connection.makefile("rb") as stream:
        for number in (1, 1, 2, 2, 3):
            if number > 1:
                write(repository, "m", number)
                assert server.ask("POST", "/v2/repository/models/m/load").status == 200
            connection.sendall(client.request)
            client.take(stream)
            assert str(number) in client.seen
        server.ask("POST", "/v2/repository/models/m/unload")
        connection.sendall(client.request)
        client.take(stream)
    ((status, document),) = client.odd
    assert b" 404 " in status
    assert document == {"error": "Request for unknown model: 'm' has no available versions"}


class FakeWorker:
    """Runs nothing by itself; the test says when a batch is done."""

    inline = helps_itself = False
    asks = None

    def __init__(self, name):
        self.name, self.batches, self.stopped = name, [], False

    def start(self, loop, supervisor, sink):
        self.supervisor = supervisor

    def submit(self, batch):
        assert not self.stopped
        self.batches.append(batch)

    def busy(self):
        return False

    def stop(self):
        self.stopped = True

    def gone(self):
        return self.stopped

    def check(self):
        return self.asks


class FakeLoop:
    """Has no timers; runs what is due when told to."""

    def __init__(self):
        self.due = []

    def call_soon(self, call, *arguments):
        self.due.append((call, arguments))

    def add_reader(self, *_):
        pass

    def remove_reader(self, *_):
        pass


def test_a_scheduler_and_what_it_knows_are_freed_without_the_collector():
    gc.collect()
    gc.disable()
    try:
        loop = FakeLoop()
        worker = FakeWorker("w")
        scheduler = Scheduler(DirectFormer(), [worker], Statistics())
        scheduler.start(loop, None)
        other = FakeWorker("other")
        scheduler.resize([other], [worker])
        assert scheduler.workers() == (other,)
        assert not scheduler.gone()
        scheduler.close()
        assert scheduler.gone()
        seen = weakref.ref(scheduler)
        del scheduler, worker.supervisor, other.supervisor
        assert seen() is None
    finally:
        gc.enable()


class Outcomes:
    """A sink that counts."""

    def __init__(self):
        self.answers = []

    def deliver(self, answer):
        self.answers.append(answer)


def test_a_worker_that_left_gets_nothing_though_its_last_batch_is_told_late():
    loop, sink = FakeLoop(), Outcomes()
    leaving, staying = FakeWorker("leaving"), FakeWorker("staying")
    scheduler = Scheduler(DirectFormer(), [leaving], Statistics())
    scheduler.start(loop, sink)

    def ask():
        scheduler.submit(Ticket(1, 1, 0, [b""], [(1,)]))
        while loop.due:
            call, arguments = loop.due.pop(0)
            call(*arguments)

    ask()
    assert len(leaving.batches) == 1
    scheduler.resize([staying], [leaving])
    # Its thread has ended, and the next change forgets about it, before the loop hears of the batch.
    scheduler.resize([], [])
    timing = Timing(0, 0, 0, 0)
    scheduler.done(leaving, leaving.batches[0], Outcome(timing, error=RequestError("x")))
    assert len(sink.answers) == 1
    ask()
    assert (len(leaving.batches), len(staying.batches)) == (1, 1)
    scheduler.lost(leaving, RequestError("x"))
    assert scheduler.ready()
    scheduler.close()


def test_instances_that_have_a_say_in_readiness_follow_changes():
    async def yes():
        return True

    async def no():
        return False

    one, two = FakeWorker("one"), FakeWorker("two")
    scheduler = Scheduler(DirectFormer(), [one], Statistics())
    scheduler.start(FakeLoop(), Outcomes())
    assert scheduler.readiness() == READY
    one.asks, two.asks = yes, no
    assert scheduler.readiness() == Readiness(True, (yes,))
    assert asyncio.run(scheduler.readiness().ask())
    scheduler.resize([two], [])
    assert scheduler.readiness() == Readiness(True, (yes, no))
    assert not asyncio.run(scheduler.readiness().ask())
    scheduler.lost(two, RequestError("x"))
    assert scheduler.ready()
    assert scheduler.readiness() == Readiness(False, (yes,))
    assert not asyncio.run(scheduler.readiness().ask())
    scheduler.resize([], [two])
    assert scheduler.readiness() == Readiness(True, (yes,))
    scheduler.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["unload", "reload", "fail"])
def test_two_hundred_loads_leave_nothing_behind(started, repository, how):
    repository.identity("m", dims=(64,), extra="dynamic_batching { }")
    server = started(repository, EXPLICIT)
    process = psutil.Process(server.process.pid)
    body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 64], "data": [1.0] * 64}]}
    model = repository.path / "m" / "1" / "model.onnx"
    good = model.read_bytes()

    def once(number):
        if how == "fail":
            model.write_bytes(b"broken" if number % 2 else good)
            os.utime(model, ns=(number, number))
            expected = 400 if number % 2 else 200
            assert server.ask("POST", "/v2/repository/models/m/load").status == expected
            return
        assert server.ask("POST", "/v2/repository/models/m/load").status == 200
        assert server.infer("m", body).status == 200
        if how == "unload":
            assert server.ask("POST", "/v2/repository/models/m/unload").status == 200
        else:
            os.utime(model, ns=(number, number))

    def settled():
        until = time.monotonic() + 20
        while True:
            found = (process.num_threads(), process.num_fds())
            time.sleep(0.2)
            if found == (process.num_threads(), process.num_fds()) or time.monotonic() > until:
                return found

    for number in range(60):
        once(number)
    threads, files = settled()
    memory = process.memory_info().rss
    for number in range(60, 260):
        once(number)
    assert settled() == (threads, files)
    assert process.memory_info().rss - memory < 8 << 20


CHAIN = """\
platform: "ensemble"
max_batch_size: 8
input [{ name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }]
ensemble_scheduling {
  step {
    model_name: "first" model_version: -1
    input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "between" }
  }
  step {
    model_name: "second" model_version: -1
    input_map { key: "IN" value: "between" } output_map { key: "OUT" value: "OUT" }
  }
}
"""


@pytest.mark.parametrize("change", ["unload", "replace", "end"])
def test_a_request_of_an_ensemble_keeps_the_members_that_it_began_with(started, repository, gate, change):
    repository.echo("first", extra=f'parameters {{ key: "gate" value {{ string_value: "{gate.path}" }} }}')
    repository.echo("second")
    folder = repository.config("chain", CHAIN)
    (folder / "1").mkdir()
    server = started(repository, EXPLICIT, "--load-model=chain")
    with server.connect() as connection, connection.makefile("rb") as stream:
        body = json.dumps(ONE).encode()
        connection.sendall(
            b"POST /v2/models/chain/infer HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        until = time.monotonic() + 20
        while not gate.reached():
            assert time.monotonic() < until
            time.sleep(0.01)
        if change == "unload":
            assert server.ask("POST", "/v2/repository/models/second/unload").status == 200
        elif change == "replace":
            # Its output is called otherwise, so the ensemble cannot be served by it.
            write(repository, "second", 2)
            server.ask("POST", "/v2/repository/models/second/load")
        else:
            server.process.terminate()
        time.sleep(0.2)
        gate.open()
        assert b" 200 " in stream.readline()
        assert b'"data":[1.0]' in stream.read1(4096)
    if change == "end":
        assert server.process.wait(20) == 0
        return
    assert server.infer("chain", ONE).status == 404

    def gone():
        index = server.ask("POST", "/v2/repository/index").json
        entry = next(item for item in index if (item["name"], item["version"]) == ("second", "1"))
        return entry["state"] == "UNAVAILABLE"

    while not gone():
        assert time.monotonic() < until + 20
        time.sleep(0.02)
