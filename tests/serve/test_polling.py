"""Poll mode: what the repository says is what is served, sooner or later."""

from __future__ import annotations

import os
import shutil
import signal
import time

import pytest

ONE = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}]}
POLL = ("--model-control-mode=poll", "--repository-poll-secs=0.3")


def states(server):
    return {
        (item["name"], item.get("version")): (item.get("state"), item.get("reason"))
        for item in server.ask("POST", "/v2/repository/index").json
    }


def wait_for(condition, seconds=30):
    """Wait until something is so; the time is only a bound for a test that would fail anyway."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def put(repository, name, **options):
    """Put a model there in one step, as one should."""
    hidden = type(repository)(repository.path.parent / "elsewhere")
    hidden.echo(name, **options)
    shutil.move(hidden.path / name, repository.path / name)


def loads(server, name="m"):
    return server.log.read_text().count(f"loaded '{name}' version 1")


def test_folders_that_come_change_and_go(started, repository):
    server = started(repository, *POLL)
    assert states(server) == {}
    put(repository, "m")
    wait_for(lambda: states(server) == {("m", "1"): ("READY", None)})
    assert server.infer("m", ONE).status == 200
    folder = repository.path / "m"
    (folder / "1" / "model.txt").write_text("fine too")
    wait_for(lambda: loads(server) == 2)
    wait_for(lambda: server.statistics("m")["inference_count"] == 0)
    shutil.copytree(folder / "1", folder / "2")
    wait_for(lambda: states(server)[("m", "1")] == ("UNAVAILABLE", "unloaded"))
    assert states(server)[("m", "2")] == ("READY", None)
    assert server.infer("m", ONE).json["model_version"] == "2"
    shutil.rmtree(folder / "2")
    wait_for(lambda: states(server)[("m", "2")] == ("UNAVAILABLE", "unloaded"))
    assert states(server)[("m", "1")] == ("READY", None)
    shutil.rmtree(folder)
    wait_for(lambda: server.infer("m", ONE).status == 404)
    wait_for(lambda: states(server) == {})
    wait_for(lambda: server.ask("GET", "/v2/health/ready").status == 200)


def test_nothing_changes_without_a_change(started, repository):
    repository.echo("m")
    server = started(repository, *POLL)
    assert server.infer("m", ONE).status == 200
    cache = repository.path / "m" / "1" / "__pycache__"
    cache.mkdir()
    (cache / "model.pyc").write_bytes(b"x")
    # A second model says when polls have gone by.
    put(repository, "other")
    wait_for(lambda: ("other", "1") in states(server))
    assert loads(server) == 1
    assert server.statistics("m")["inference_count"] == 1


def test_a_broken_config_is_logged_and_the_old_one_stays(started, repository):
    repository.echo("m")
    server = started(repository, *POLL)
    config = repository.path / "m" / "config.pbtxt"
    text = config.read_text()
    config.write_text("nonsense {")
    said = "Poll failed for model directory 'm': failed to read text proto from"
    wait_for(lambda: said in server.log.read_text())
    put(repository, "other")
    wait_for(lambda: ("other", "1") in states(server))
    assert server.infer("m", ONE).status == 200
    assert server.log.read_text().count(said) == 1
    config.write_text(text)
    put(repository, "third")
    wait_for(lambda: ("third", "1") in states(server))
    assert server.infer("m", ONE).status == 200
    assert loads(server) == 1


def test_a_model_that_fails_is_tried_again(started, repository):
    server = started(repository, *POLL)
    put(repository, "m")
    (repository.path / "m" / "1" / "model.txt").write_text("broken")
    wait_for(lambda: states(server).get(("m", "1"), ("", ""))[0] == "UNAVAILABLE")
    assert server.ask("GET", "/v2/health/ready").status == 400
    failed = "failed to load 'm' version 1"
    wait_for(lambda: server.log.read_text().count(failed) > 1)
    (repository.path / "m" / "1" / "model.txt").write_text("fine")
    wait_for(lambda: states(server)[("m", "1")] == ("READY", None))
    assert server.ask("GET", "/v2/health/ready").status == 200


def test_a_model_that_failed_and_is_gone_is_forgotten(started, repository):
    repository.echo("m")
    (repository.path / "m" / "1" / "model.txt").write_text("broken")
    server = started(repository, *POLL, "--exit-on-error=false")
    assert server.ask("GET", "/v2/health/ready").status == 400
    shutil.rmtree(repository.path / "m")
    wait_for(lambda: server.ask("GET", "/v2/health/ready").status == 200)


def test_a_folder_that_is_being_written_is_left_alone(started, repository):
    server = started(repository, "--model-control-mode=poll", "--repository-poll-secs=1")
    hidden = type(repository)(repository.path.parent / "elsewhere")
    hidden.echo("m")
    folder = repository.path / "m"
    folder.mkdir()
    shutil.copy(hidden.path / "m" / "config.pbtxt", folder)
    (folder / "1").mkdir()
    with (folder / "1" / "model.txt").open("w") as stream:
        stream.write("broken")
        until = time.monotonic() + 4
        while time.monotonic() < until:
            stream.write(".")
            stream.flush()
            time.sleep(0.05)
    assert "failed to load" not in server.log.read_text()
    assert "is being written" in server.log.read_text()
    assert states(server) == {("m", None): (None, None)}
    wait_for(lambda: states(server) == {("m", "1"): ("READY", None)})


def test_a_repository_that_is_away_for_a_moment_ends_nothing(started, repository):
    repository.echo("m")
    server = started(repository, *POLL)
    away = repository.path.with_name("away")
    repository.path.rename(away)
    wait_for(lambda: "failed to poll model repository" in server.log.read_text())
    assert server.infer("m", ONE).status == 200
    away.rename(repository.path)
    put(repository, "other")
    wait_for(lambda: ("other", "1") in states(server))
    assert loads(server) == 1


def test_a_name_that_appears_twice_is_unloaded(serving, repository, tmp_path):
    repository.echo("m")
    other = type(repository)(tmp_path / "other")
    other.path.mkdir()
    server = serving(repository.path, *POLL, f"--model-repository={other.path}")
    try:
        put(other, "m")
        wait_for(lambda: server.infer("m", ONE).status == 404)
        assert states(server) == {("m", None): ("UNAVAILABLE", "model appears in two or more repositories")}
        shutil.rmtree(other.path / "m")
        wait_for(lambda: server.infer("m", ONE).status == 200)
    finally:
        server.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_noticed_between_two_polls(started, repository, number):
    repository.echo("m")
    server = started(repository, "--model-control-mode=poll", "--repository-poll-secs=1000")
    os.kill(server.process.pid, number)
    assert server.process.wait(20) == 0
