"""Processes of python models: crashes, restarts, and their end."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

MORTAL = """
class TritonPythonModel:
    def execute(self, requests):
        value = int(requests[0].inputs()[0].as_numpy()[0, 0])
        if value == -1:
            os._exit(3)
        if value == -2:
            import time
            open(os.path.join(os.path.dirname(__file__), "..", "..", "..", "reached"), "w").close()
            time.sleep(600)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[os.getpid()]], dtype=np.int32))])
            for request in requests
        ]
"""
UNHEALTHY = "Stub process 'mortal_0_0' is not healthy."


def pid_of(server, one, model="mortal"):
    answer = server.infer(model, one())
    return answer.json["outputs"][0]["data"][0] if answer.status == 200 else None


def test_a_crash_costs_its_request_and_the_process_is_started_again(
    started, models, repository, one, processes
):
    _, wait_until = processes
    models.add("mortal", MORTAL)
    server = started(repository)
    first = pid_of(server, one)
    answer = server.infer("mortal", one(-1))
    assert (answer.status, answer.error) == (500, UNHEALTHY)
    wait_until(lambda: pid_of(server, one))
    assert pid_of(server, one) != first


def test_a_kill_under_load_costs_only_the_requests_of_its_batch(started, models, repository, one, processes):
    alive, wait_until = processes
    models.add(
        "mortal", MORTAL.replace("-2:", "-2 or value == 7:").replace("time.sleep(600)", "time.sleep(60)")
    )
    folder = models.path / "mortal"
    config = folder / "config.pbtxt"
    config.write_text(config.read_text().replace("kind: KIND_CPU", "kind: KIND_CPU count: 2"))
    server = started(repository)
    stop = threading.Event()
    failed: list[str] = []
    answered: list[int] = []
    reached = Path(models.path).parent / "reached"

    def hang():
        return server.infer("mortal", one(7))

    def load():
        while not stop.is_set():
            answer = server.infer("mortal", one())
            if answer.status == 200:
                answered.append(answer.json["outputs"][0]["data"][0])
            else:
                failed.append(answer.error)

    with ThreadPoolExecutor(4) as pool:
        hanging = pool.submit(hang)
        wait_until(reached.exists)
        loads = [pool.submit(load) for _ in range(3)]
        wait_until(lambda: len(answered) > 20)
        working = set(answered)
        assert len(working) == 1
        victims = [pid for pid in children(server) if pid not in working]
        assert len(victims) == 1
        os.kill(victims[0], signal.SIGKILL)
        assert hanging.result(30).error == "Stub process 'mortal_0_1' is not healthy." or (
            hanging.result().error == UNHEALTHY
        )
        wait_until(lambda: len(set(answered)) > 1)
        stop.set()
        for done in loads:
            done.result()
    assert failed == []
    assert not alive(victims[0])


def children(server):
    """Process ids of the children of a server."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(parent) == server.process.pid and state != "Z":
                found.append(int(folder.name))
    return found


def test_nothing_is_left_when_the_server_is_killed(started, models, repository, one, processes):
    alive, wait_until = processes
    code = MORTAL.replace(
        "class Triton", "import subprocess\nHELPER = subprocess.Popen(['sleep', '600'])\nclass Triton"
    )
    models.add("mortal", code.replace("[[os.getpid()]]", "[[HELPER.pid if value == 6 else os.getpid()]]"))
    server = started(repository)
    pid = pid_of(server, one)
    helper = server.infer("mortal", one(6)).json["outputs"][0]["data"][0]
    assert alive(pid)
    assert alive(helper)
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(server.infer, "mortal", one(-2))
        wait_until((Path(models.path).parent / "reached").exists)
        os.kill(server.process.pid, signal.SIGKILL)
        with pytest.raises(OSError):
            hanging.result()
    wait_until(lambda: not alive(pid) and not alive(helper))


def test_the_end_of_the_server_finalizes_models(started, models, repository, one, processes):
    alive, _ = processes
    models.add(
        "mortal",
        MORTAL
        + """
    def finalize(self):
        open(os.path.join(os.path.dirname(__file__), "..", "..", "..", "finalized"), "w").close()
        print("printed at the end")
""",
    )
    server = started(repository)
    pid = pid_of(server, one)
    # As a terminal does: to every process of the group, which the child is not one of.
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    assert pid_of(server, one) == pid
    assert server.stop() == 0
    assert (models.path.parent / "finalized").exists()
    assert not alive(pid)
    assert "printed at the end" in server.log.read_text()
    assert not list(models.path.rglob("__pycache__"))


def test_a_model_that_closed_its_output_and_left_threads_ends_all_the_same(
    started, models, repository, one, processes
):
    _, wait_until = processes
    code = MORTAL.replace(
        "        return [",
        "        import sys, threading, time\n"
        "        threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "        sys.stdout.close()\n"
        "        sys.stderr = None\n"
        "        return [",
        1,
    )
    models.add("mortal", code)
    server = started(repository, "--model-control-mode=explicit", "--load-model=mortal")
    assert pid_of(server, one)
    assert server.ask("POST", "/v2/repository/models/mortal/unload").status == 200
    wait_until(
        lambda: server.ask("POST", "/v2/repository/index").json[0]["state"] == "UNAVAILABLE", seconds=20
    )
    assert "Traceback" not in server.log.read_text()


def test_an_execution_that_hangs_does_not_hold_the_end_up_for_longer_than_allowed(
    started, models, repository, one, processes
):
    alive, wait_until = processes
    models.add("mortal", MORTAL)
    server = started(repository, "--exit-timeout-secs=1")
    pid = pid_of(server, one)
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(server.infer, "mortal", one(-2))
        wait_until((Path(models.path).parent / "reached").exists)
        assert server.stop() == 1
        # The end may overtake the answer that its process is gone.
        if hanging.exception() is None:
            assert hanging.result().error == UNHEALTHY
        else:
            assert isinstance(hanging.exception(), OSError)
    wait_until(lambda: not alive(pid))


FORKING = """
import time

class TritonPythonModel:
    def execute(self, requests):
        value = int(requests[0].inputs()[0].as_numpy()[0, 0])
        if value == 1:
            forked = os.fork()
            if forked == 0:
                raise RuntimeError("in the fork")
            os.waitpid(forked, 0)
        if value == 2:
            forked = os.fork()
            if forked == 0:
                pb_utils.Logger.log_info("said in a fork")
                try:
                    pb_utils.is_model_ready("forking")
                    os._exit(1)
                except pb_utils.TritonModelException:
                    os._exit(0)
            assert os.waitpid(forked, 0)[1] == 0
        if value == 3:
            self.daemon(os.fork)
            os._exit(3)
        if value == 7:
            import ctypes
            self.daemon(ctypes.PyDLL(None).fork)
            os._exit(3)
        if value == 4:
            os.spawnlp(os.P_NOWAIT, "setsid", "setsid", "sh", "-c", "echo $$ > NOTE; exec sleep 600")
            while not (os.path.exists("NOTE") and open("NOTE").read()):
                time.sleep(0.01)
            os._exit(3)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[value]], dtype=np.int32))])]

    def daemon(self, fork):
        if fork() == 0:
            os.setsid()
            with open("NOTE", "w") as note:
                note.write(str(os.getpid()))
            time.sleep(600)
            os._exit(0)
        while not (os.path.exists("NOTE") and open("NOTE").read()):
            time.sleep(0.01)
"""


def test_only_the_process_of_the_model_talks_to_the_server(started, models, repository, one):
    models.add("forking", FORKING)
    server = started(repository)
    for value in [1, 5, 2, 6]:
        answer = server.infer("forking", one(value))
        assert answer.json["outputs"][0]["data"] == [value], answer.body
    assert b"said in a fork" in server.log.read_bytes()


@pytest.mark.parametrize("way", [3, 4, 7], ids=["fork", "program", "fork-below-python"])
def test_a_crash_is_seen_though_a_daemon_lives_on(way, started, models, repository, one, processes, tmp_path):
    _, wait_until = processes
    note = tmp_path / "note"
    models.add("forking", FORKING.replace('"NOTE"', repr(str(note))).replace("NOTE", str(note)))
    server = started(repository)
    try:
        assert server.infer("forking", one(way)).error == "Stub process 'forking_0_0' is not healthy."
        wait_until(lambda: server.infer("forking", one(5)).status == 200)
    finally:
        os.kill(int(note.read_text()), signal.SIGKILL)
