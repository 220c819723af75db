"""Loading and unloading on request: what is answered, and what serves before, meanwhile and afterwards."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

EXPLICIT = "--model-control-mode=explicit"
ONE = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}]}
CONFIG = {
    "backend": "echo",
    "max_batch_size": 8,
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}],
    "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
}


def load(server, name, **parameters):
    return server.ask(
        "POST", f"/v2/repository/models/{name}/load", {"parameters": parameters} if parameters else None
    )


def unload(server, name, body=None):
    return server.ask("POST", f"/v2/repository/models/{name}/unload", body)


def index(server, body=None):
    return server.ask("POST", "/v2/repository/index", body).json


def ready(server):
    return server.ask("GET", "/v2/health/ready").status == 200


def wait_for(condition, seconds=30):
    """Wait until something is so; the time is only a bound for a test that would fail anyway."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def states(server, name="m"):
    return {
        item.get("version"): (item.get("state"), item.get("reason"))
        for item in index(server)
        if item["name"] == name
    }


def add_version(repository, name, number, text="fine"):
    folder = repository.path / name / str(number)
    folder.mkdir()
    (folder / "model.txt").write_text(text)


# Load and unload


def test_a_model_is_served_from_its_load_to_its_unload(started, repository):
    repository.echo("m")
    server = started(repository, EXPLICIT)
    assert ready(server)
    assert index(server) == [{"name": "m"}]
    missing = server.infer("m", ONE)
    assert (missing.status, missing.error) == (404, "Request for unknown model: 'm' is not found")
    response = load(server, "m")
    assert (response.status, response.body) == (200, b"")
    assert index(server) == [{"name": "m", "version": "1", "state": "READY"}]
    assert server.infer("m", ONE).status == 200
    assert server.statistics("m")["inference_count"] == 1
    response = unload(server, "m")
    assert (response.status, response.body) == (200, b"")
    gone = server.infer("m", ONE)
    assert (gone.status, gone.error) == (404, "Request for unknown model: 'm' has no available versions")
    wait_for(lambda: states(server) == {"1": ("UNAVAILABLE", "unloaded")})
    assert ready(server)
    assert index(server, {"ready": True}) == []
    versioned = server.infer("m/versions/1", ONE)
    assert versioned.status == 503
    assert versioned.error == "Request for unknown model: 'm' version 1 is not at ready state"
    assert server.ask("GET", "/v2/models/m/stats").status == 400
    assert "m" not in server.ask("GET", "/metrics", port=server.ports["metrics"]).body.decode().split('"')
    assert load(server, "m").status == 200
    assert server.statistics("m")["inference_count"] == 0
    assert server.infer("m", ONE).status == 200


def test_unload_is_idempotent(started, repository):
    repository.echo("m")
    server = started(repository, EXPLICIT, "--load-model=m")
    for _ in range(3):
        assert unload(server, "m").status == 200
    assert unload(server, "unknown").status == 200
    assert unload(server, "m", {"parameters": {"unload_dependents": True}}).status == 200
    refused = unload(server, "m", {"parameters": {"unload_dependents": 1}})
    assert refused.status == 500
    assert refused.error.startswith("Unable to parse 'unload_dependents': ")


@pytest.mark.parametrize("mode", ["none", "poll"])
@pytest.mark.parametrize("action", ["load", "unload"])
def test_other_modes_refuse(started, repository, mode, action):
    repository.echo("m")
    server = started(repository, f"--model-control-mode={mode}")
    for name in ("m", "unknown"):
        refused = server.ask("POST", f"/v2/repository/models/{name}/{action}")
        assert refused.status == 503
        assert refused.error == "explicit model load / unload is not allowed if polling is enabled"
    named = server.ask("POST", f"/v2/repository/other/models/m/{action}")
    assert (named.status, named.error) == (501, "'repository_name' specification is not supported")
    assert server.infer("m", ONE).status == 200


def test_models_to_load_at_the_start(started, repository):
    for name in ("a", "b", "c"):
        repository.echo(name)
    server = started(repository, EXPLICIT, "--load-model=a", "--load-model=c")
    assert [item for item in index(server) if "state" in item] == [
        {"name": "a", "version": "1", "state": "READY"},
        {"name": "c", "version": "1", "state": "READY"},
    ]


def test_all_models_at_the_start(started, repository):
    for name in ("a", "b"):
        repository.echo(name)
    server = started(repository, EXPLICIT, "--load-model=*")
    assert [item["state"] for item in index(server)] == ["READY", "READY"]


@pytest.mark.parametrize(
    "options",
    [
        ["--load-model=m"],
        [EXPLICIT, "--load-model=*", "--load-model=m"],
        ["--model-namespacing=true"],
        [EXPLICIT, "--load-model=../x"],
        ["--model-control-mode=sometimes"],
        ["--repository-poll-secs=0"],
        ["--model-config-name=../x"],
        ["--http-address="],
    ],
)
def test_wrong_usage(launch, repository, options):
    server = launch(repository.path, *options)
    assert server.process.wait(30) == 2
    assert "Error: " in server.log.read_text()


def test_a_start_up_model_that_is_not_there(launch, repository):
    server = launch(repository.path, EXPLICIT, "--load-model=m")
    assert server.process.wait(30) == 3
    assert "m: model not found in any model repository." in server.log.read_text()


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"parameters": {"foo": "x"}}, 500, "unexpected error on creating Triton parameter"),
        ({"parameters": 1}, 500, "attempt to get members for non-object"),
        ({"parameters": None}, 500, "attempt to get members for non-object"),
        ({"parameters": {"config": 1}}, 500, "attempt to access JSON non-string as string"),
        (
            {"parameters": {"config": "{"}},
            500,
            "failed to load 'm', failed to poll from model repository",
        ),
        (
            {"parameters": {"config": '{"no_such_field": 1}'}},
            500,
            "failed to load 'm', failed to poll from model repository",
        ),
        (
            {"parameters": {"config": json.dumps({**CONFIG, "name": "other"})}},
            500,
            "failed to load 'm', failed to poll from model repository",
        ),
        (
            {"parameters": {"file:1/model.txt": "Zm9v"}},
            500,
            "failed to load 'm', failed to poll from model repository",
        ),
    ],
    ids=[
        "other key",
        "number",
        "null",
        "no string",
        "no JSON",
        "no config",
        "other name",
        "files without config",
    ],
)
def test_loads_that_are_refused(started, repository, body, status, text):
    repository.echo("m")
    server = started(repository, EXPLICIT, "--load-model=m")
    refused = server.ask("POST", "/v2/repository/models/m/load", body)
    assert (refused.status, refused.error) == (status, text)
    assert states(server) == {"1": ("READY", None)}
    assert server.infer("m", ONE).status == 200


def test_a_model_that_is_not_there(started, repository):
    server = started(repository, EXPLICIT)
    refused = load(server, "nope")
    assert refused.status == 500
    assert refused.error == "failed to load 'nope', failed to poll from model repository"
    assert index(server) == []
    assert ready(server)


@pytest.mark.parametrize("name", ["..", ".", "%20/../x"])
def test_names_that_lead_out_of_the_repository(started, repository, name):
    server = started(repository, EXPLICIT)
    refused = load(server, name)
    if "/" in name:
        assert refused.status == 404
    else:
        assert refused.status == 400
        assert refused.error == (
            f"invalid model name '{name}', model name must not contain path traversal characters"
        )


def test_a_load_that_fails(started, repository):
    repository.echo("m")
    model = repository.path / "m" / "1" / "model.txt"
    model.write_text("broken")
    server = started(repository, EXPLICIT)
    refused = load(server, "m")
    reason = "Internal: RuntimeError: the file is broken"
    assert refused.status == 400
    assert refused.error == f"load failed for model 'm': version 1 is at UNAVAILABLE state: {reason};\n"
    assert states(server) == {"1": ("UNAVAILABLE", reason)}
    assert not ready(server)
    assert load(server, "m").status == 400
    model.write_text("fine")
    assert load(server, "m").status == 200
    assert ready(server)


def test_no_version_to_load(started, repository):
    repository.echo("m", extra="version_policy { specific { versions: [ 7 ] } }")
    server = started(repository, EXPLICIT)
    refused = load(server, "m")
    assert refused.status == 400
    assert refused.error == (
        "load failed for model 'm': at least one version must be available under the version policy of "
        "model 'm'\n"
    )
    assert index(server) == []
    assert server.ask("GET", "/v2/health/ready").status == 400
    assert server.infer("m", ONE).error.endswith("'m' has no available versions")


def test_a_policy_without_a_version_leaves_what_serves_alone(started, repository):
    repository.echo("m")
    server = started(repository, EXPLICIT, "--load-model=m")
    for config in ["version_policy { specific { versions: [ 7 ] } }", ""]:
        repository.echo("m", extra=config)
        assert load(server, "m").status == (400 if config else 200)
        assert index(server) == [{"name": "m", "version": "1", "state": "READY"}]
        assert server.ask("GET", "/v2/health/ready").status == 200
        assert server.infer("m", ONE).status == 200


def test_links_that_lead_nowhere_are_no_models_and_no_versions(started, repository):
    repository.echo("m")
    for place in [repository.path, repository.path / "m", repository.path / "m" / "1"]:
        (place / "7").symlink_to("7")
        (place / "8").symlink_to("nowhere")
    server = started(repository)
    assert server.infer("m", ONE).status == 200
    assert index(server) == [{"name": "m", "version": "1", "state": "READY"}]


def test_a_load_tries_again(started, repository):
    repository.echo("m")
    (repository.path / "m" / "1" / "model.txt").write_text("flaky")
    server = started(repository, EXPLICIT, "--model-load-retry-count=2")
    assert load(server, "m").status == 200
    assert server.log.read_text().count("failed to load 'm' version 1: RuntimeError: not this time") == 2


# Reload


def test_nothing_changed_is_nothing_done(started, repository):
    repository.echo("m")
    server = started(repository, EXPLICIT, "--load-model=m")
    assert server.infer("m", ONE).status == 200
    config = repository.path / "m" / "config.pbtxt"
    assert load(server, "m").status == 200
    config.write_text(config.read_text())
    assert load(server, "m").status == 200
    cache = repository.path / "m" / "1" / "__pycache__"
    cache.mkdir()
    (cache / "model.pyc").write_bytes(b"x")
    assert load(server, "m").status == 200
    assert server.statistics("m")["inference_count"] == 1
    assert server.log.read_text().count("loaded 'm' version 1") == 1


@pytest.mark.parametrize("what", ["parameter", "model file", "other file", "removed file"])
def test_a_change_is_a_reload_with_fresh_numbers(started, repository, what):
    repository.echo("m")
    folder = repository.path / "m"
    (folder / "extra.txt").write_text("x")
    server = started(repository, EXPLICIT, "--load-model=m")
    assert server.infer("m", ONE).status == 200
    if what == "parameter":
        repository.echo("m", extra='parameters { key: "x" value { string_value: "y" } }')
    elif what == "model file":
        (folder / "1" / "model.txt").write_text("fine too")
    elif what == "other file":
        (folder / "labels.txt").write_text("a\n")
    else:
        (folder / "extra.txt").unlink()
    assert load(server, "m").status == 200
    assert server.statistics("m")["inference_count"] == 0
    assert states(server) == {"1": ("READY", None)}


def test_instances_change_in_place(started, repository):
    repository.echo("m", delay_ms=300, count=1, extra="version_policy { all {} }")
    config = repository.path / "m" / "config.pbtxt"
    server = started(repository, EXPLICIT, "--load-model=m")
    assert server.infer("m", ONE).status == 200
    with ThreadPoolExecutor(4) as pool:
        for count in (3, 1, 2):
            flying = [pool.submit(server.infer, "m", ONE) for _ in range(3)]
            time.sleep(0.05)
            config.write_text(re.sub("count: [0-9]+", f"count: {count}", config.read_text()))
            assert load(server, "m").status == 200
            assert [item.result().status for item in flying] == [200, 200, 200]
            groups = server.ask("GET", "/v2/models/m/config").json["instance_group"]
            assert [group["count"] for group in groups] == [count]
    assert server.statistics("m")["inference_count"] == 10
    assert server.log.read_text().count("loaded 'm' version 1") == 1
    assert server.infer("m", ONE).status == 200


def test_instances_that_cannot_be_had_leave_the_old_ones(started, repository):
    repository.echo("m")
    server = started(repository, EXPLICIT, "--load-model=m")
    config = repository.path / "m" / "config.pbtxt"
    config.write_text(config.read_text().replace("KIND_CPU", "KIND_GPU"))
    refused = load(server, "m")
    assert refused.status == 400
    assert refused.error.startswith("load failed for model 'm': version 1 is at READY state: ")
    assert "no GPUs are available" in refused.error
    assert server.infer("m", ONE).status == 200
    assert ready(server)


def test_instances_that_cannot_be_opened_leave_the_old_ones(started, repository):
    repository.echo("m", count=2)
    server = started(repository, EXPLICIT, "--load-model=m")
    config = repository.path / "m" / "config.pbtxt"
    text = config.read_text()
    config.write_text(text.replace("count: 2", "count: 3"))
    (repository.path / "refuse").touch()
    refused = load(server, "m")
    assert refused.status == 400
    assert refused.error == (
        "load failed for model 'm': version 1 is at READY state: Internal: RuntimeError: no more instances;\n"
    )
    assert server.infer("m", ONE).status == 200
    (repository.path / "refuse").unlink()
    assert load(server, "m").status == 200
    assert server.statistics("m")["inference_count"] == 1


def test_a_reload_that_fails_keeps_what_serves(started, repository):
    repository.echo("m", extra="version_policy { all {} }")
    server = started(repository, EXPLICIT, "--load-model=m")
    assert server.infer("m", ONE).status == 200
    add_version(repository, "m", 2, "broken")
    add_version(repository, "m", 3)
    refused = load(server, "m")
    reason = "Internal: RuntimeError: the file is broken"
    assert refused.error == f"load failed for model 'm': version 2 is at UNAVAILABLE state: {reason};\n"
    wait_for(
        lambda: (
            states(server)
            == {"1": ("READY", None), "2": ("UNAVAILABLE", reason), "3": ("UNAVAILABLE", "unloaded")}
        )
    )
    assert not ready(server)
    assert server.infer("m", ONE).json["model_version"] == "1"
    assert server.ask("GET", "/v2/models/m/ready").status == 200
    (repository.path / "m" / "2" / "model.txt").write_text("fine")
    assert load(server, "m").status == 200
    assert {state for state, _ in states(server).values()} == {"READY"}
    assert server.infer("m", ONE).json["model_version"] == "3"
    assert server.statistics("m")["inference_count"] == 2
    assert ready(server)


def test_a_version_that_the_policy_drops_is_unloaded(started, repository):
    repository.echo("m")
    server = started(repository, EXPLICIT, "--load-model=m")
    add_version(repository, "m", 2)
    assert load(server, "m").status == 200
    wait_for(lambda: states(server) == {"1": ("UNAVAILABLE", "unloaded"), "2": ("READY", None)})
    assert server.infer("m", ONE).json["model_version"] == "2"
    assert server.ask("GET", "/v2/models/m").json["versions"] == ["2"]


def test_a_broken_config_leaves_what_serves(started, repository):
    repository.echo("m")
    server = started(repository, EXPLICIT, "--load-model=m")
    (repository.path / "m" / "config.pbtxt").write_text("nonsense {")
    assert load(server, "m").status == 500
    assert server.infer("m", ONE).status == 200
    assert states(server) == {"1": ("READY", None)}
    assert "Poll failed for model directory 'm': failed to read text proto from" in server.log.read_text()


# Overrides


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def test_a_config_override_replaces_the_file_and_is_remembered(started, repository):
    repository.echo("m")
    server = started(repository, EXPLICIT, "--load-model=m")
    assert load(server, "m", config=json.dumps({**CONFIG, "max_batch_size": 2})).status == 200
    assert server.ask("GET", "/v2/models/m/config").json["max_batch_size"] == 2
    assert server.ask("GET", "/v2/models/m/config").json["parameters"] == {}
    assert server.infer("m", ONE).status == 200
    assert load(server, "m").status == 200
    assert server.ask("GET", "/v2/models/m/config").json["max_batch_size"] == 2
    assert load(server, "m", config=json.dumps({**CONFIG, "max_batch_size": 2})).status == 200
    assert server.statistics("m")["inference_count"] == 1
    repository.echo("m", batch=5)
    assert load(server, "m").status == 200
    assert server.ask("GET", "/v2/models/m/config").json["max_batch_size"] == 5


def test_unloading_forgets_a_config_override(started, repository):
    repository.echo("m")
    server = started(repository, EXPLICIT)
    assert load(server, "m", config=json.dumps({**CONFIG, "max_batch_size": 2})).status == 200
    assert unload(server, "m").status == 200
    assert load(server, "m").status == 200
    assert server.ask("GET", "/v2/models/m/config").json["max_batch_size"] == 8


def test_files_that_come_with_the_request(started, repository, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    repository.echo("m")
    server = started(repository, EXPLICIT, "--load-model=m")
    config = json.dumps({**CONFIG, "version_policy": {"all": {}}})
    files = {"file:7/model.txt": encoded("fine"), "file:9/model.txt": encoded("fine")}
    assert load(server, "m", config=config, **files).status == 200
    assert server.ask("GET", "/v2/models/m").json["versions"] == ["7", "9"]
    (folder,) = scratch.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    assert load(server, "new", config=config, **{"file:1/model.txt": encoded("fine")}).status == 200
    assert server.infer("new", ONE).status == 200
    assert {item["name"] for item in index(server)} == {"m"}
    failed = load(server, "bad", config=config, **{"file:1/model.txt": encoded("broken")})
    assert failed.status == 400
    wait_for(lambda: len(list(scratch.iterdir())) == 2)
    assert load(server, "m").status == 200
    assert server.ask("GET", "/v2/models/m").json["versions"] == ["1"]
    assert unload(server, "new").status == 200
    wait_for(lambda: not list(scratch.iterdir()))
    assert load(server, "new", config=config, **{"file:1/model.txt": encoded("fine")}).status == 200
    assert server.stop() == 0
    assert not list(scratch.iterdir())


@pytest.mark.parametrize(
    "path", ["../outside", "1/../../outside", "", ".", "a/../..", "1/model.txt/below", "1/a\0b"]
)
def test_files_that_would_lie_elsewhere(started, repository, tmp_path, path):
    server = started(repository, EXPLICIT)
    body = {
        "parameters": {
            "config": json.dumps(CONFIG),
            "file:1/model.txt": encoded("fine"),
            f"file:{path}": encoded("x"),
        }
    }
    refused = server.ask("POST", "/v2/repository/models/m/load", body)
    assert refused.status == 500
    assert refused.error == "failed to load 'm', failed to poll from model repository"
    assert "Invalid file parameter" in server.log.read_text()


def test_base64_is_read_leniently(started, repository):
    server = started(repository, EXPLICIT)
    files = {"file:1/model.txt": "Zm\n9v*=\u00e9=Yg=", "file:x": "Z", "file:y": "===", "file:z": ""}
    assert load(server, "m", config=json.dumps(CONFIG), **files).status == 200


def test_a_body_that_is_too_large(started, repository):
    server = started(repository, EXPLICIT, "--http-max-input-size=1000")
    refused = load(server, "m", config=json.dumps(CONFIG), **{"file:1/model.txt": "A" * 2000})
    assert refused.status in {400, 413}
    assert ready(server)


# Several repositories


def test_several_repositories(serving, repository, tmp_path):
    repository.echo("a")
    repository.echo("both")
    other = type(repository)(tmp_path / "other")
    other.echo("b")
    other.echo("both")
    server = serving(repository.path, EXPLICIT, f"--model-repository={other.path}")
    try:
        assert load(server, "a").status == 200
        assert load(server, "b").status == 200
        refused = load(server, "both")
        assert refused.status == 500
        assert refused.error == "failed to load 'both', failed to poll from model repository"
        twice = {
            "name": "both",
            "state": "UNAVAILABLE",
            "reason": "model appears in two or more repositories",
        }
        assert index(server) == [
            {"name": "a", "version": "1", "state": "READY"},
            {"name": "b", "version": "1", "state": "READY"},
            twice,
        ]
        assert ready(server)
    finally:
        server.stop()


def test_a_name_in_two_repositories_ends_the_start(launch, repository, tmp_path):
    repository.echo("both")
    other = type(repository)(tmp_path / "other")
    other.echo("both")
    server = launch(repository.path, f"--model-repository={other.path}")
    assert server.process.wait(30) == 3
    assert "both: not unique across all model repositories" in server.log.read_text()


def test_a_config_by_name(started, repository):
    repository.echo("m")
    repository.echo("plain")
    configs = repository.path / "m" / "configs"
    configs.mkdir()
    text = (repository.path / "m" / "config.pbtxt").read_text()
    (configs / "small.pbtxt").write_text(text.replace("max_batch_size: 8", "max_batch_size: 3"))
    server = started(repository, "--model-config-name=small", "--model-namespacing=false")
    assert server.ask("GET", "/v2/models/m/config").json["max_batch_size"] == 3
    assert server.ask("GET", "/v2/models/plain/config").json["max_batch_size"] == 8


def test_a_version_that_fails_leaves_the_instances_of_the_others_as_they_were(started, repository):
    repository.echo("m", extra="version_policy { all { } }")
    (repository.path / "m" / "2").mkdir()
    (repository.path / "m" / "2" / "model.txt").write_text("fine")
    server = started(repository, EXPLICIT, "--load-model=m")
    config = repository.path / "m" / "config.pbtxt"
    config.write_text(config.read_text().replace("count: 1", "count: 3"))
    (repository.path / "m" / "2" / "model.txt").write_text("broken")
    assert load(server, "m").status == 400
    assert server.ask("GET", "/v2/models/m/versions/1/config").json["instance_group"][0]["count"] == 1
    threads = len(psutil.Process(server.process.pid).threads())
    assert load(server, "m").status == 400
    assert server.infer("m/versions/1", ONE).status == 200
    # The instances that were brought up for nothing have gone.
    wait_for(lambda: len(psutil.Process(server.process.pid).threads()) <= threads)
    (repository.path / "m" / "2" / "model.txt").write_text("fine again")
    assert load(server, "m").status == 200
    assert server.ask("GET", "/v2/models/m/versions/1/config").json["instance_group"][0]["count"] == 3


# In flight


def in_background(call):
    """Call on a thread; the thread, and a list that will hold the result."""
    results = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    return thread, results


def gated(repository, gate):
    """Let the opening of model ``m`` wait at the gate."""
    repository.echo("m")
    (repository.path / "m" / "1" / "model.txt").write_text(f"gate {gate.path}")


def test_an_unload_lets_requests_in_flight_finish(started, repository, gate):
    repository.echo("m", extra=f'parameters {{ key: "gate" value {{ string_value: "{gate.path}" }} }}')
    server = started(repository, EXPLICIT, "--load-model=m")
    thread, answers = in_background(lambda: server.infer("m", ONE))
    wait_for(gate.reached)
    assert unload(server, "m").status == 200
    assert states(server) == {"1": ("UNLOADING", None)}
    assert not ready(server)
    assert server.infer("m", ONE).status == 404
    assert server.infer("m/versions/1", ONE).status == 503
    assert load(server, "m").status == 200
    assert states(server) == {"1": ("READY", None)}
    assert ready(server)
    assert answers == []
    gate.open()
    thread.join()
    assert answers[0].status == 200
    assert server.infer("m", ONE).status == 200
    assert states(server) == {"1": ("READY", None)}
    assert server.statistics("m")["inference_count"] == 1


def test_the_end_of_an_unload(started, repository, gate):
    repository.echo("m", extra=f'parameters {{ key: "gate" value {{ string_value: "{gate.path}" }} }}')
    server = started(repository, EXPLICIT, "--load-model=m")
    thread, answers = in_background(lambda: server.infer("m", ONE))
    wait_for(gate.reached)
    assert unload(server, "m").status == 200
    gate.open()
    thread.join()
    assert answers[0].status == 200
    wait_for(lambda: states(server) == {"1": ("UNAVAILABLE", "unloaded")})


def test_a_load_makes_others_wait_for_nothing(started, repository, gate):
    gated(repository, gate)
    repository.echo("other")
    server = started(repository, EXPLICIT, "--load-model=other")
    thread, answers = in_background(lambda: load(server, "m"))
    wait_for(gate.reached)
    assert states(server) == {"1": ("LOADING", None)}
    assert not ready(server)
    assert server.infer("other", ONE).status == 200
    assert server.infer("m", ONE).status == 404
    assert server.infer("m/versions/1", ONE).status == 503
    second, again = in_background(lambda: load(server, "m"))
    assert answers == []
    gate.open()
    thread.join()
    second.join()
    assert (answers[0].status, again[0].status) == (200, 200)
    assert server.log.read_text().count("loaded 'm' version 1") == 1


def test_an_unload_during_a_load_comes_after_it(started, repository, gate):
    gated(repository, gate)
    server = started(repository, EXPLICIT)
    thread, answers = in_background(lambda: load(server, "m"))
    wait_for(gate.reached)
    second, unloaded = in_background(lambda: unload(server, "m"))
    gate.open()
    thread.join()
    second.join()
    assert (answers[0].status, unloaded[0].status) == (200, 200)
    wait_for(lambda: states(server) == {"1": ("UNAVAILABLE", "unloaded")})


def test_the_old_version_serves_while_the_new_one_is_loaded(started, repository, gate):
    repository.echo("m")
    server = started(repository, EXPLICIT, "--load-model=m")
    assert server.infer("m", ONE).status == 200
    gated(repository, gate)
    thread, answers = in_background(lambda: load(server, "m"))
    wait_for(gate.reached)
    assert states(server) == {"1": ("READY", None)}
    assert ready(server)
    assert server.infer("m", ONE).status == 200
    assert server.statistics("m")["inference_count"] == 2
    gate.open()
    thread.join()
    assert answers[0].status == 200
    assert server.statistics("m")["inference_count"] == 0


def test_many_loads_at_once(started, repository):
    names = [f"m{number}" for number in range(50)]
    for name in names:
        repository.echo(name)
    server = started(repository, EXPLICIT, "--model-load-thread-count=3")
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda name: load(server, name), names))
    assert {answer.status for answer in answers} == {200}
    assert {item["state"] for item in index(server)} == {"READY"}


def test_loads_and_unloads_of_one_model_at_once(started, repository):
    repository.echo("m")
    server = started(repository, EXPLICIT)
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda number: (unload if number % 3 == 0 else load)(server, "m"), range(60)))
    assert {answer.status for answer in answers} == {200}
    assert load(server, "m").status == 200
    assert server.infer("m", ONE).status == 200


# The end


def test_a_stop_during_a_load_answers_it_and_unloads(started, repository, gate):
    gated(repository, gate)
    server = started(repository, EXPLICIT)
    thread, answers = in_background(lambda: load(server, "m"))
    wait_for(gate.reached)
    server.process.terminate()
    wait_for(lambda: "stopping" in server.log.read_text())
    gate.open()
    assert server.stop() == 0
    thread.join()
    assert answers[0].status == 200
    assert "Traceback" not in server.log.read_text()


def test_a_stop_during_the_start(launch, repository, gate):
    gated(repository, gate)
    repository.echo("other")
    server = launch(repository.path, "--model-load-thread-count=1")
    wait_for(gate.reached)
    server.process.terminate()
    wait_for(lambda: "stopping" in server.log.read_text())
    gate.open()
    assert server.stop() == 0
    text = server.log.read_text()
    assert "loaded 'other'" not in text
    assert "Traceback" not in text


@pytest.mark.parametrize("when", ["at the start", "on request"])
def test_a_load_that_hangs_does_not_keep_the_server(launch, serving, repository, gate, when):
    gated(repository, gate)
    if when == "at the start":
        server = launch(repository.path, "--exit-timeout-secs=1")
    else:
        server = serving(repository.path, EXPLICIT, "--exit-timeout-secs=1")
        with server.connect() as connection:
            connection.sendall(b"POST /v2/repository/models/m/load HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
            wait_for(gate.reached)
            assert server.stop() == 1
    wait_for(gate.reached)
    assert server.stop() == 1
    assert "Exit timeout expired. Exiting immediately." in server.log.read_text()
