"""How the server starts, what it says when it cannot, and how it stops."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import pytest
from onnx import TensorProto, helper

from repobuild_serve import __version__
from repobuild_serve.errors import StartError
from repobuild_serve.gpus import Gpu
from repobuild_serve.repository import read_model

ONE = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}]}


@pytest.fixture
def connect():
    """Opens raw connections that are closed when the test ends."""
    opened = []

    def open_one(server):
        opened.append(server.connect())
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


def outcome(launch, path, *options):
    """Exit status and output of a server that ends by itself."""
    server = launch(path, *options)
    try:
        status = server.process.wait(30)
    finally:
        server.process.kill()
    return status, server.log.read_text()


def test_a_missing_repository(launch, tmp_path):
    status, text = outcome(launch, tmp_path / "nowhere")
    assert status == 3
    assert f"error[repository-missing]: the model repository does not exist: {tmp_path}/nowhere\n" in text
    assert "\nhint: " in text
    assert "Traceback" not in text


def test_a_repository_that_is_a_file(launch, tmp_path):
    (tmp_path / "file").write_text("")
    status, text = outcome(launch, tmp_path / "file")
    assert status == 3
    assert "is not a folder" in text


def test_a_model_that_fails_ends_the_start_and_says_why(launch, repository):
    repository.identity("good")
    repository.config("bad", "max_batch_size: 8\nfoo: 1\n")
    status, text = outcome(launch, repository.path)
    assert status == 3
    assert "error[models-not-loaded]: failed to load all models\n" in text
    assert 'Message type "inference.ModelConfig" has no field named "foo".' in text
    assert "2:1 : " in text
    assert "Traceback" not in text


def test_every_model_that_fails_is_named(launch, repository):
    repository.config("one", 'name: "two" backend: "onnxruntime"')
    repository.config("three", "max_batch_size: -1")
    status, text = outcome(launch, repository.path)
    assert status == 3
    assert "one: unexpected directory name 'one' for model 'two'" in text
    assert "  three: " in text


def test_the_others_are_served_if_errors_do_not_end_the_start(started, repository):
    repository.identity("good")
    repository.config("unreadable", "foo: 1")
    repository.echo("failed")
    (repository.path / "failed" / "1" / "model.txt").write_text("broken")
    server = started(repository, "--exit-on-error=false")
    assert server.ask("GET", "/v2/models/good/ready").status == 200
    assert server.ask("GET", "/v2/health/ready").status == 400
    assert server.ask("GET", "/v2/health/ready").body == b""
    assert server.ask("POST", "/v2/repository/index").json == [
        {
            "name": "failed",
            "version": "1",
            "state": "UNAVAILABLE",
            "reason": "Internal: RuntimeError: the file is broken",
        },
        {"name": "good", "version": "1", "state": "READY"},
        {"name": "unreadable"},
    ]
    assert server.ask("POST", "/v2/repository/index", {"ready": True}).json == [
        {"name": "good", "version": "1", "state": "READY"}
    ]
    response = server.infer("failed", ONE)
    assert (response.status, response.error) == (
        404,
        "Request for unknown model: 'failed' has no available versions",
    )
    assert server.ask("GET", "/v2/models/unreadable").status == 404


def test_folders_that_cannot_be_read_do_not_count_for_readiness(started, repository):
    repository.identity("good")
    repository.config("unreadable", "foo: 1")
    server = started(repository, "--no-exit-on-error")
    assert server.ask("GET", "/v2/health/ready").status == 200


def test_readiness_that_is_not_strict(started, repository):
    repository.echo("failed")
    (repository.path / "failed" / "1" / "model.txt").write_text("broken")
    server = started(repository, "--exit-on-error=false", "--strict-readiness=false")
    assert server.ask("GET", "/v2/health/ready").status == 200


def test_an_empty_repository_is_ready(started, repository):
    server = started(repository)
    assert server.ask("GET", "/v2/health/ready").status == 200
    assert server.ask("POST", "/v2/repository/index").json == []


def test_a_taken_port(launch, repository):
    repository.identity("m")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, text = outcome(launch, repository.path, f"--http-port={port}")
    assert status == 7
    assert f"error[port-unavailable]: the HTTP port {port} on 127.0.0.1 cannot be opened" in text
    assert "--http-port" in text
    assert "Traceback" not in text


def test_an_address_that_is_not_this_machines(launch, repository):
    repository.identity("m")
    status, text = outcome(launch, repository.path, "--http-address=192.0.2.1")
    assert status == 7
    assert "error[port-unavailable]" in text


def test_an_address_that_no_name_is_written_like(launch, repository):
    repository.identity("m")
    status, text = outcome(launch, repository.path, "--http-address=a..b")
    assert status == 7
    assert "error[port-unavailable]" in text


def test_a_port_file_that_cannot_be_written(launch, repository, tmp_path):
    repository.identity("m")
    status, text = outcome(launch, repository.path, f"--port-file={tmp_path}/no/such/folder")
    assert status == 7
    assert "error[port-file-unwritable]" in text


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_a_port_file_replaces_nothing_but_a_file(launch, repository, tmp_path, kind):
    repository.identity("m")
    path = tmp_path / "there" / "ports"
    path.parent.mkdir()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("elsewhere")
    before = path.lstat().st_ino
    status, text = outcome(launch, repository.path, f"--port-file={path}")
    assert status == 7
    assert "error[port-file-unwritable]" in text
    assert path.lstat().st_ino == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "options", [["--http-port=70000"], ["--no-such-option"], ["--exit-timeout-secs=x"], ["a", "b"]]
)
def test_wrong_usage(launch, repository, options):
    status, text = outcome(launch, repository.path, *options)
    assert status == 2
    assert "Usage:" in text


def test_help_names_every_option():
    text = subprocess.run(
        [sys.executable, "-m", "repobuild_serve", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for option in ("--http-port", "--port-file", "--exit-on-error", "--http-max-input-size", "--id"):
        assert option in text


def test_one_line_says_that_nothing_listens_for_grpc(started, repository):
    server = started(repository, "--grpc-port=8123")
    lines = [line for line in server.log.read_text().splitlines() if "gRPC" in line]
    assert len(lines) == 1
    assert "8123" in lines[0]


def test_metrics_may_be_left_out(started, repository):
    server = started(repository, "--allow-metrics=false")
    assert server.ports["metrics"] is None


def test_the_port_file_is_gone_after_the_stop(started, repository):
    server = started(repository)
    file = server.ports.get("file", None)
    assert file is None
    assert server.stop() == 0


def test_it_never_writes_into_the_repository(started, repository):
    repository.identity("m")
    repository.echo("e")
    for path in (*repository.path.rglob("*"), repository.path):
        path.chmod(stat.S_IRUSR | (stat.S_IXUSR if path.is_dir() else 0))
    before = sorted(path.stat().st_mtime_ns for path in repository.path.rglob("*"))
    server = started(repository)
    assert server.infer("e", ONE).status == 200
    server.stop()
    assert sorted(path.stat().st_mtime_ns for path in repository.path.rglob("*")) == before
    for path in (repository.path, *repository.path.rglob("*")):
        path.chmod(0o700)


def test_ports_open_only_after_every_model_has_been_warmed_up(launch, repository):
    warmup = (
        'model_warmup [{ name: "w" batch_size: 1 '
        'inputs { key: "IN" value { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } }]'
    )
    repository.echo("m", delay_ms=1500, extra=warmup)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = launch(repository.path, f"--http-port={port}")
    try:
        began = time.monotonic()
        refused = 0
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=5):
                    break
            except ConnectionRefusedError:
                refused += 1
                assert time.monotonic() < began + 60
                time.sleep(0.05)
        server.ports["http"] = port
        assert refused > 0
        assert server.ask("GET", "/v2/health/ready").status == 200
        assert server.statistics("m")["execution_count"] == 1
    finally:
        server.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_requests_in_flight_finish_and_new_ones_are_refused(started, repository, connect, number):
    repository.echo("slow", delay_ms=700)
    server = started(repository)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(server.infer("slow", ONE)))
    idle = connect(server)
    busy = connect(server)
    body = json.dumps(ONE).encode()
    head = b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    busy.sendall(head + body[:10])
    thread.start()
    time.sleep(0.3)
    os.kill(server.process.pid, number)
    os.kill(server.process.pid, number)
    assert idle.recv(10) == b""
    thread.join()
    with pytest.raises(ConnectionError):
        server.connect()
    busy.sendall(body[10:])
    last = busy.recv(65536)
    assert last.startswith(b"HTTP/1.1 ")
    assert b"Connection: close" in last
    assert server.process.wait(20) == 0
    assert answers[0].status == 200
    assert answers[0].headers["Connection"] == "close"


def test_readiness_while_stopping(started, repository, connect):
    repository.echo("slow", delay_ms=1500)
    server = started(repository)
    thread = threading.Thread(target=lambda: server.infer("slow", ONE))
    thread.start()
    half = connect(server)
    half.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n")
    time.sleep(0.2)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    half.sendall(b"\r\n")
    answer = half.recv(1000)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b'{"error":"Server exiting"}' in answer
    thread.join()
    assert server.process.wait(20) == 0


def test_the_exit_time_out(started, repository, connect):
    repository.echo("slow", delay_ms=20_000)
    server = started(repository, "--exit-timeout-secs=1")
    connection = connect(server)
    body = json.dumps(ONE).encode()
    connection.sendall(
        b"POST /v2/models/slow/infer HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    time.sleep(0.3)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(15) == 1
    assert "Exit timeout expired. Exiting immediately." in server.log.read_text()


def endless_model():
    """A graph that adds 1 to its input again and again, for much longer than any test."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Add", ["sum", "one"], ["more"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["rows", 1]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("more", TensorProto.FLOAT, ["rows", 1]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips", "yes", "X"], ["Y"], body=body)],
        "endless",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["rows", 1])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["rows", 1])],
        [
            helper.make_tensor("trips", TensorProto.INT64, [], [1 << 40]),
            helper.make_tensor("yes", TensorProto.BOOL, [], [True]),
            helper.make_tensor("one", TensorProto.FLOAT, [], [1.0]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_the_exit_time_out_within_native_code(started, repository, connect):
    repository.onnx("endless", endless_model())
    repository.config(
        "endless",
        'backend: "onnxruntime"\nmax_batch_size: 4\n'
        'input { name: "X" data_type: TYPE_FP32 dims: 1 }\n'
        'output { name: "Y" data_type: TYPE_FP32 dims: 1 }\n',
    )
    server = started(repository, "--exit-timeout-secs=1")
    connection = connect(server)
    body = b'{"inputs":[{"name":"X","shape":[1,1],"datatype":"FP32","data":[1]}]}'
    connection.sendall(
        b"POST /v2/models/endless/infer HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    time.sleep(0.3)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(15) == 1
    assert server.log.read_text().endswith("Exit timeout expired. Exiting immediately.\n")


def test_the_server_imports_neither_the_client_nor_grpc_nor_the_builder(repository, tmp_path):
    repository.identity("m")
    script = tmp_path / "script.py"
    script.write_text(
        "import asyncio, sys, threading, os, signal, pathlib\n"
        "from repobuild_serve import server\n"
        "from repobuild_serve.options import Options\n"
        "options = Options(pathlib.Path(sys.argv[1]), http_port=0, metrics_port=0)\n"
        "threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()\n"
        "status = server.serve(options)\n"
        "banned = {'tritonclient', 'grpc', 'repobuild', 'torch', 'sklearn', 'onnx', 'pydantic', 'gevent'}\n"
        "print(status, sorted(banned & {name.split('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), str(repository.path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0 []\n"


@pytest.mark.parametrize("package", ["httptools", "orjson", "google.protobuf"])
def test_a_missing_package_is_named_with_what_to_do(repository, package):
    repository.identity("m")
    script = (
        f"import sys; sys.modules[{package!r}] = None; from repobuild_serve.cli import main; "
        f"sys.exit(main([{str(repository.path)!r}, '--http-port', '0', '--no-allow-metrics']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 7, done.stderr
    assert package.split(".")[-1] in done.stderr
    assert "hint: pip install '" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_version_is_told():
    done = subprocess.run(
        [sys.executable, "-m", "repobuild_serve", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"repobuild_serve, version {__version__}\n"


def test_every_module_imports_without_the_heavy_packages():
    # What runs in the processes of python models takes NumPy for granted.
    script = (
        "import importlib, pkgutil, sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'numpy', 'onnxruntime', 'torch', 'sklearn', 'google', 'onnx', "
        "'tritonclient', 'grpc', 'psutil', 'rapidjson', 'uvloop'}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "import repobuild_serve\n"
        "for module in pkgutil.walk_packages(repobuild_serve.__path__, 'repobuild_serve.'):\n"
        "    if not module.name.endswith('__main__') and '.python_child.' not in module.name:\n"
        "        importlib.import_module(module.name)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_missing_runtime_is_named_with_what_to_install(repository):
    repository.identity("m")
    script = (
        "import sys\n"
        "sys.modules['onnxruntime'] = None\n"
        "from repobuild_serve.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(repository.path), "--http-port=0", "--metrics-port=0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 7
    assert "error[onnxruntime-missing]" in done.stderr
    assert "repobuild[cpu]" in done.stderr
    assert "repobuild[gpu]" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("config", ["whole", "none"])
@pytest.mark.parametrize(
    "options", [(), ("--backend-config=onnxruntime,enable-global-threadpool=1",)], ids=["plain", "pool"]
)
def test_a_missing_runtime_costs_only_its_models_if_errors_do_not_end_the_start(
    started, repository, config, options
):
    repository.identity("m")
    if config == "none":
        (repository.path / "m" / "config.pbtxt").unlink()
    repository.echo("other")
    server = started(repository, "--exit-on-error=false", *options, without="onnxruntime")
    missing, other = server.ask("POST", "/v2/repository/index").json
    assert (missing["name"], missing["version"], missing["state"]) == ("m", "1", "UNAVAILABLE")
    assert missing["reason"].startswith(
        "Unavailable: failed to load model 'm': ONNX Runtime is not installed"
    )
    assert "pip install 'repobuild[cpu]'" in missing["reason"]
    assert missing["reason"].removeprefix("Unavailable: ") in server.log.read_text()
    assert other["state"] == "READY"
    body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
    assert server.infer("other", body).status == 200
    assert server.infer("m", body).status == 404
    assert server.ask("GET", "/v2/health/ready").status == 400


@pytest.mark.parametrize("config", ["whole", "none"])
def test_a_missing_runtime_ends_the_start_else(launch, repository, config):
    repository.identity("m")
    if config == "none":
        (repository.path / "m" / "config.pbtxt").unlink()
    repository.echo("other")
    server = launch(repository.path, without="onnxruntime")
    assert server.process.wait(60) == 7
    assert "error[onnxruntime-missing]" in server.log.read_text()


def test_a_missing_runtime_that_is_asked_for_gpus_costs_only_its_models(repository, monkeypatch):
    repository.identity("m")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    problem = read_model(repository.path / "m", auto_complete=True, gpus=(Gpu(0, "9.0"),)).problem
    assert isinstance(problem, StartError)
    assert problem.reference == "onnxruntime-missing"
