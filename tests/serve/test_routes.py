"""Every route but inference."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families


def test_health(server):
    for path in (
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/models/sum/ready",
        "/v2/models/versions/versions/3/ready",
    ):
        response = server.ask("GET", path)
        assert (response.status, response.body) == (200, b"")


def test_ready_for_a_model_that_is_not_there(server):
    response = server.ask("GET", "/v2/models/nope/ready")
    assert (response.status, response.error) == (404, "Request for unknown model: 'nope' is not found")


def test_server_metadata(server):
    document = server.ask("GET", "/v2").json
    assert list(document) == ["name", "version", "extensions"]
    assert document["name"] == "test server"


def test_model_metadata(server):
    assert server.ask("GET", "/v2/models/sum").json == {
        "name": "sum",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [
            {"name": "A", "datatype": "FP32", "shape": [-1, 2]},
            {"name": "B", "datatype": "FP32", "shape": [-1, 2]},
        ],
        "outputs": [
            {"name": "SUM", "datatype": "FP32", "shape": [-1, 2]},
            {"name": "DIFFERENCE", "datatype": "FP32", "shape": [-1, 2]},
        ],
    }


def test_metadata_of_several_versions_and_of_shapes_without_batch(server):
    assert server.ask("GET", "/v2/models/versions").json["versions"] == ["1", "3"]
    assert server.ask("GET", "/v2/models/versions/versions/1").json["versions"] == ["1"]
    assert server.ask("GET", "/v2/models/whole").json["inputs"][0]["shape"] == [2, 2]
    assert server.ask("GET", "/v2/models/scalar").json["inputs"][0]["shape"] == [-1, 1]
    assert server.ask("GET", "/v2/models/id_bytes").json["inputs"][0]["datatype"] == "BYTES"


def test_the_config_is_completed_and_prints_numbers_as_numbers(server):
    config = server.ask("GET", "/v2/models/batching/config").json
    assert list(config)[:6] == ["name", "platform", "backend", "runtime", "version_policy", "max_batch_size"]
    assert config["version_policy"] == {"latest": {"num_versions": 1}}
    assert config["input"][0]["dims"] == [1]
    assert config["dynamic_batching"] == {
        "preferred_batch_size": [32],
        "max_queue_delay_microseconds": 2000,
        "preserve_ordering": False,
        "priority_levels": 0,
        "default_priority_level": 0,
        "priority_queue_policy": {},
    }
    assert config["instance_group"][0]["name"] == "batching_0"
    assert config["optimization"]["input_pinned_memory"] == {"enable": True}
    assert "sequence_batching" not in config
    assert "model_transaction_policy" not in config


def test_instances_of_a_model_that_names_none(server):
    groups = server.ask("GET", "/v2/models/sum/config").json["instance_group"]
    assert [(group["name"], group["kind"], group["count"]) for group in groups] == [("sum", "KIND_CPU", 2)]


def test_statistics_of_one_and_of_all(server):
    assert server.ask("GET", "/v2/models/versions/versions/3/stats").json["model_stats"][0]["version"] == "3"
    assert len(server.ask("GET", "/v2/models/versions/stats").json["model_stats"]) == 2
    names = [item["name"] for item in server.ask("GET", "/v2/models/stats").json["model_stats"]]
    assert names == sorted(names)
    assert {"sum", "versions"} <= set(names)


def test_statistics_of_models_that_are_not_there(server):
    response = server.ask("GET", "/v2/models/nope/stats")
    assert (response.status, response.error) == (400, "requested model 'nope' is not available")
    response = server.ask("GET", "/v2/models/sum/versions/7/stats")
    assert response.error == "requested model version is not available for model 'sum'"


def test_the_index(server):
    items = server.ask("POST", "/v2/repository/index").json
    assert {"name": "versions", "version": "3", "state": "READY"} in items
    assert items == sorted(items, key=lambda item: (item["name"], item["version"]))
    assert server.ask("POST", "/v2/repository/index", {"ready": True}).json == items
    response = server.ask("POST", "/v2/repository/index", {"ready": 1})
    assert (response.status, response.error) == (400, "Invalid value for 'ready': expected a boolean")
    assert server.ask("GET", "/v2/repository/index").status == 405
    assert server.ask("POST", "/v2/repository/mine/index").json == items


def test_models_cannot_be_loaded_or_unloaded(server):
    for verb in ("load", "unload"):
        response = server.ask("POST", f"/v2/repository/models/sum/{verb}", {})
        assert (response.status, response.error) == (
            503,
            "explicit model load / unload is not allowed if polling is enabled",
        )


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2"),
        ("POST", "/v2/health/live"),
        ("HEAD", "/v2/health/live"),
        ("OPTIONS", "/v2/models/sum"),
        ("GET", "/v2/models/sum/infer"),
        ("PUT", "/v2/models/sum/infer"),
        ("DELETE", "/v2/models/sum/config"),
    ],
)
def test_other_methods_are_refused(server, method, path):
    response = server.ask(method, path)
    assert response.status == 405
    assert response.body in {b'{"error":"Method Not Allowed"}', b""}


@pytest.mark.parametrize(
    "path",
    ["/", "/v2/", "/V2", "//v2", "/v2/models", "/v2/models/a/b/infer", "/v2/models/sum/infer/", "/metrics"],
)
def test_paths_that_are_not_there(server, path):
    response = server.ask("GET", path)
    assert (response.status, response.body) == (404, b'{"error":"Not Found"}')


def test_the_query_is_ignored(server):
    assert server.ask("GET", "/v2/models/sum?x=/y").json["name"] == "sum"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v2/trace/setting"),
        ("POST", "/v2/models/sum/trace/setting"),
        ("POST", "/v2/systemsharedmemory/region/r/register"),
        ("POST", "/v2/cudasharedmemory/unregister"),
    ],
)
def test_what_is_not_served_says_so(server, method, path):
    response = server.ask(method, path)
    assert response.status == 501
    assert (
        "not supported by this server yet" in response.error or "shared memory is disabled" in response.error
    )


def test_metrics_have_tritons_names_and_parse(server):
    response = server.ask("GET", "/metrics", port=server.ports["metrics"])
    assert response.headers["Content-Type"].startswith("text/plain")
    text = response.body.decode()
    assert '\nnv_inference_request_success{model="versions",version="3"} ' in text
    assert 'nv_inference_request_failure{model="versions",reason="REJECTED",version="3"} 0' in text
    families = {family.name for family in text_string_to_metric_families(text)}
    assert {
        "nv_inference_count",
        "nv_inference_exec_count",
        "nv_inference_queue_duration_us",
        "nv_inference_pending_request_count",
        "nv_cpu_memory_total_bytes",
    } <= families


def test_the_metrics_port_answers_nothing_else(server):
    port = server.ports["metrics"]
    assert server.ask("POST", "/metrics", port=port).status == 405
    other = server.ask("GET", "/other", port=port)
    assert (other.status, other.body) == (200, b"")


def test_metric_tags_are_labels(started, repository, tensor):
    repository.identity("tagged", extra='metric_tags { key: "team" value: "a \\"b\\"" }')
    server = started(repository)
    text = server.ask("GET", "/metrics", port=server.ports["metrics"]).body.decode()
    assert 'nv_inference_count{_team="a \\"b\\"",model="tagged",version="1"} 0' in text


def test_errors_have_one_key(server):
    assert json.loads(server.ask("GET", "/nope").body) == {"error": "Not Found"}
