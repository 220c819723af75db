"""Batching, queue policies and statistics of real servers."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

ONE = {"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}


def many(server, model, values, **more):
    """Ask for every value at the same time, each on its own connection; the responses in order."""
    barrier = threading.Barrier(len(values))

    def ask(value):
        barrier.wait()
        return server.infer(model, {"inputs": [{**ONE, "data": [value]}], **more})

    with ThreadPoolExecutor(len(values)) as pool:
        return list(pool.map(ask, values))


def check_identities(stats, before):
    """What holds for the statistics of a time in which nothing failed."""

    def total(item, of):
        return sum(of(batch) for batch in item["batch_stats"])

    def grown(of):
        return of(stats) - of(before)

    def rows(item):
        return total(item, lambda batch: batch["batch_size"] * batch["compute_infer"]["count"])

    def runs(item):
        return total(item, lambda batch: batch["compute_infer"]["count"])

    assert grown(rows) == grown(lambda item: item["inference_count"])
    assert grown(runs) == grown(lambda item: item["execution_count"])
    success = grown(lambda item: item["inference_stats"]["success"]["count"])
    for part in ("queue", "compute_input", "compute_infer", "compute_output"):
        assert grown(lambda item, part=part: item["inference_stats"][part]["count"]) == success
    parts = stats["inference_stats"]
    assert sum(parts[part]["ns"] for part in ("queue", "compute_infer")) <= parts["success"]["ns"]


def test_concurrent_single_rows_share_batches_and_get_their_own_answers(server):
    before = server.statistics("batching")
    values = [float(number) for number in range(64)]
    responses = many(server, "batching", values)
    assert [response.json["outputs"][0]["data"][0] for response in responses] == values
    after = server.statistics("batching")
    assert after["inference_count"] - before["inference_count"] == 64
    assert after["execution_count"] - before["execution_count"] < 64
    check_identities(after, before)


def test_a_long_run_of_concurrent_requests_is_answered_rightly(server):
    def client(number):
        wrong = 0
        for step in range(100):
            value = float(np.float32(number + step / 128))
            response = server.infer("batching", {"inputs": [{**ONE, "data": [value]}]})
            wrong += response.json["outputs"][0]["data"] != [value]
        return wrong

    before = server.statistics("batching")
    with ThreadPoolExecutor(12) as pool:
        assert sum(pool.map(client, range(12))) == 0
    check_identities(server.statistics("batching"), before)


def test_requests_of_several_rows_and_of_mixed_formats_share_a_batch(server):
    outputs = [None, [{"name": "OUT", "parameters": {"binary_data": True}}]]
    barrier = threading.Barrier(12)

    def ask(number):
        rows = number % 3 + 1
        body = {"inputs": [{**ONE, "shape": [rows, 1], "data": [number] * rows}], "id": str(number)}
        if outputs[number % 2]:
            body["outputs"] = outputs[number % 2]
        barrier.wait()
        response = server.infer("batching", body)
        length = response.headers.get("Inference-Header-Content-Length")
        if length:
            assert json.loads(response.body[: int(length)])["id"] == str(number)
            return np.frombuffer(response.body[int(length) :], dtype="<f4").tolist()
        assert response.json["id"] == str(number)
        return response.json["outputs"][0]["data"]

    with ThreadPoolExecutor(12) as pool:
        for number, answer in enumerate(pool.map(ask, range(12))):
            assert answer == [number] * (number % 3 + 1)


def test_different_shapes_do_not_share_a_batch(server):
    barrier = threading.Barrier(10)

    def ask(number):
        width = number % 2 + 1
        barrier.wait()
        body = {"inputs": [{**ONE, "shape": [1, width], "data": [number] * width}]}
        return server.infer("variable", body).json["outputs"][0]

    with ThreadPoolExecutor(10) as pool:
        for number, item in enumerate(pool.map(ask, range(10))):
            width = number % 2 + 1
            assert (item["shape"], item["data"]) == ([1, width], [number] * width)


def test_a_busy_instance_collects_a_batch(server):
    before = server.statistics("slow")
    first = threading.Thread(target=many, args=(server, "slow", [0.0]))
    first.start()
    responses = many(server, "slow", [float(number) for number in range(1, 9)])
    first.join()
    assert [response.json["outputs"][0]["data"][0] for response in responses] == list(range(1, 9))
    after = server.statistics("slow")
    assert after["inference_count"] - before["inference_count"] == 9
    assert after["execution_count"] - before["execution_count"] < 9


def test_without_dynamic_batching_each_request_runs_alone(server):
    before = server.statistics("echo")
    many(server, "echo", [float(number) for number in range(8)])
    after = server.statistics("echo")
    assert after["execution_count"] - before["execution_count"] == 8
    check_identities(after, before)


def test_a_slow_model_does_not_hold_up_the_others(server):
    thread = threading.Thread(target=many, args=(server, "slow", [0.0] * 4))
    thread.start()
    while thread.is_alive():
        assert server.ask("GET", "/v2/health/live").status == 200
        assert server.infer("echo", {"inputs": [ONE]}).status == 200
    thread.join()


def test_instances_run_at_the_same_time(started, repository):
    repository.echo("two", delay_ms=300, batch=1, count=2)
    server = started(repository)
    many(server, "two", [1.0, 2.0])
    stats = server.statistics("two")
    assert stats["execution_count"] == 2
    # One after the other, the second would have queued for the whole run of the first.
    assert stats["inference_stats"]["queue"]["ns"] < 250_000_000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            -1.0,
            "Failed to process the request(s) for model 'fails_0_0', message: ValueError: the model met -1",
        ),
        (-2.0, "model 'fails' returned 0 rows for output 'OUT' of a batch of 1 rows"),
        (-3.0, "model 'fails' returned 0 outputs, expected 1"),
        (-4.0, "model 'fails' returned float64 for output 'OUT', expected FP32"),
        (-5.0, "model 'fails' returned shape [2] for output 'OUT', expected [1]"),
    ],
)
def test_a_backend_that_fails_fails_its_batch_and_nothing_else(started, repository, value, text):
    repository.echo("fails")
    server = started(repository)
    response = server.infer("fails", {"inputs": [{**ONE, "data": [value]}]})
    assert (response.status, response.error) == (500, text)
    assert server.infer("fails", {"inputs": [ONE]}).status == 200
    stats = server.statistics("fails")
    assert stats["inference_stats"]["fail"]["count"] == 1
    assert stats["inference_count"] == 1
    assert stats["execution_count"] == 2
    text = server.ask("GET", "/metrics", port=server.ports["metrics"]).body.decode()
    assert 'nv_inference_request_failure{model="fails",reason="BACKEND",version="1"} 1' in text


def test_a_full_queue_refuses_at_once(started, repository):
    repository.echo(
        "full", delay_ms=300, batch=1, extra="dynamic_batching { default_queue_policy { max_queue_size: 2 } }"
    )
    server = started(repository)
    responses = many(server, "full", [1.0] * 8, id="q")
    refused = [response for response in responses if response.status != 200]
    assert len(refused) >= 5
    assert {response.status for response in refused} == {503}
    assert {response.error for response in refused} == {"[request id: q] Exceeds maximum queue size"}
    assert server.statistics("full")["inference_stats"]["fail"]["count"] == 0


def test_the_server_bounds_all_queues_together(started, repository):
    repository.echo("slow", delay_ms=300, batch=1)
    server = started(repository, "--max-queued-requests=2")
    statuses = [response.status for response in many(server, "slow", [1.0] * 6)]
    assert sorted(statuses) == [200, 200, 503, 503, 503, 503]


def test_requests_time_out_in_the_queue(started, repository):
    policy = "default_queue_policy { default_timeout_microseconds: 100000 allow_timeout_override: true }"
    repository.echo("timed", delay_ms=1000, batch=1, extra=f"dynamic_batching {{ {policy} }}")
    server = started(repository)
    responses = many(server, "timed", [1.0] * 3)
    assert sorted(response.status for response in responses) == [200, 503, 503]
    assert {r.error for r in responses if r.status == 503} == {"Request timeout expired"}
    stats = server.statistics("timed")["inference_stats"]
    assert (stats["success"]["count"], stats["fail"]["count"]) == (1, 2)
    text = server.ask("GET", "/metrics", port=server.ports["metrics"]).body.decode()
    assert 'nv_inference_request_failure{model="timed",reason="REJECTED",version="1"} 2' in text


def test_answers_keep_the_order_if_the_model_asks_for_it(started, repository):
    repository.echo(
        "ordered", delay_ms=20, batch=1, count=3, extra="dynamic_batching { preserve_ordering: true }"
    )
    server = started(repository)
    values = [float(number) for number in range(12)]
    before = server.statistics("ordered")
    assert [r.json["outputs"][0]["data"][0] for r in many(server, "ordered", values)] == values
    check_identities(server.statistics("ordered"), before)


def test_the_first_batch_waits_if_the_environment_says_so(started, repository, monkeypatch):
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "3")
    repository.echo("m", extra="dynamic_batching { }")
    server = started(repository)
    assert [response.status for response in many(server, "m", [1.0, 2.0, 3.0])] == [200] * 3
    assert server.statistics("m")["execution_count"] == 1
    assert server.infer("m", {"inputs": [ONE]}).status == 200
