"""Repositories of small models, and real servers on them."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

ONNX_TYPES = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BYTES": TensorProto.STRING,
}

BACKEND_SOURCE = '''
"""A backend for tests: gives back its input, after a delay, or misbehaves when the data asks for it."""
import os
import pathlib
import threading
import time

import numpy as np

counted = {}


def wait_at(gate):
    """Say that somebody is here, and wait until the test lets him pass."""
    pathlib.Path(gate + ".reached").touch()
    while not os.path.exists(gate + ".open"):
        time.sleep(0.01)


class Instance:
    def __init__(self, settings):
        self.settings = settings
        self.delay = float(settings.parameters.get("delay_ms", "0")) / 1000

    def run(self, inputs):
        (array,) = inputs.values()
        time.sleep(self.delay)
        if "gate" in self.settings.parameters:
            wait_at(self.settings.parameters["gate"])
        values = array.ravel().tolist()
        if -1.0 in values:
            raise ValueError("the model met -1")
        if -2.0 in values:
            return [array[:-1]]
        if -3.0 in values:
            return []
        if -4.0 in values:
            return [array.astype(np.float64)]
        if -5.0 in values:
            return [np.concatenate([array, array], axis=1)]
        return [array]

    def close(self):
        pass


class Backend:
    platform = ""
    default_filename = "model.txt"
    default_count = 1

    def complete(self, config, path):
        pass

    def open(self, settings, path, instance_name):
        text = path.read_text()
        if text == "broken":
            raise RuntimeError("the file is broken")
        if text.startswith("gate "):
            wait_at(text.removeprefix("gate "))
        if text == "flaky":
            counted[settings.name] = counted.get(settings.name, 0) + 1
            if counted[settings.name] < 3:
                raise RuntimeError("not this time")
        return Instance(settings)
'''


@dataclass
class Repository:
    """A model repository in a temporary folder, built model by model."""

    path: Path

    def config(self, name: str, text: str) -> Path:
        """Write a config.pbtxt."""
        folder = self.path / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.pbtxt").write_text(text, encoding="utf-8")
        return folder

    def onnx(self, name: str, model: onnx.ModelProto, version: int = 1) -> Path:
        """Write a version's model file."""
        folder = self.path / name / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(model, folder / "model.onnx")
        return folder

    def identity(
        self,
        name: str,
        wire: str = "FP32",
        dims: tuple[int, ...] = (2,),
        *,
        batch: int = 8,
        extra: str = "",
        version: int = 1,
    ) -> None:
        """A model that gives back its input."""
        self.onnx(name, identity_model(wire, dims, batched=batch > 0), version)
        config = "TYPE_STRING" if wire == "BYTES" else f"TYPE_{wire}"
        listed = ", ".join(map(str, dims))
        self.config(
            name,
            f'backend: "onnxruntime"\nmax_batch_size: {batch}\n'
            f'input [{{ name: "IN" data_type: {config} dims: [ {listed} ] }}]\n'
            f'output [{{ name: "OUT" data_type: {config} dims: [ {listed} ] }}]\n'
            f"instance_group [{{ count: 1 kind: KIND_CPU }}]\n{extra}\n",
        )

    def echo(
        self, name: str, *, delay_ms: float = 0, batch: int = 8, extra: str = "", count: int = 1
    ) -> None:
        """A model of the test backend: FP32, dims [1]."""
        folder = self.config(
            name,
            f'backend: "echo"\nmax_batch_size: {batch}\n'
            'input [{ name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }]\n'
            'output [{ name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }]\n'
            f"instance_group [{{ count: {count} kind: KIND_CPU }}]\n"
            f'parameters {{ key: "delay_ms" value {{ string_value: "{delay_ms}" }} }}\n{extra}\n',
        )
        (folder / "1").mkdir(exist_ok=True)
        (folder / "1" / "model.txt").write_text("fine", encoding="utf-8")

    def repeat(self, name: str, *, decoupled: bool = True, batch: int = 0, extra: str = "") -> None:
        """A model of the backend in ``repeat_backend.py``: as many responses as elements."""
        folder = self.config(
            name,
            f'backend: "repeat"\nmax_batch_size: {batch}\n'
            'input [{ name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }]\n'
            'output [{ name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }]\n'
            f"model_transaction_policy {{ decoupled: {str(decoupled).lower()} }}\n"
            f"instance_group [{{ count: 2 kind: KIND_CPU }}]\n{extra}\n",
        )
        (folder / "1").mkdir(exist_ok=True)
        (folder / "1" / "model.txt").write_text("fine", encoding="utf-8")


def identity_model(wire: str, dims: tuple[int, ...], *, batched: bool) -> onnx.ModelProto:
    shape: list[Any] = [
        *(["batch"] if batched else []),
        *(f"d{i}" if d == -1 else d for i, d in enumerate(dims)),
    ]
    return model_of(
        [helper.make_node("Identity", ["IN"], ["OUT"])],
        [helper.make_tensor_value_info("IN", ONNX_TYPES[wire], shape)],
        [helper.make_tensor_value_info("OUT", ONNX_TYPES[wire], shape)],
    )


def model_of(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "test", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@dataclass
class Response:
    """An HTTP response, read whole."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The text of an error body, which has no other key."""
        document = json.loads(self.body)
        assert list(document) == ["error"]
        return document["error"]


@dataclass
class RunningServer:
    """A server process."""

    process: subprocess.Popen[bytes]
    log: Path
    ports: dict[str, Any] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """The HTTP port."""
        return self.ports["http"]

    @property
    def address(self) -> str:
        """Host and port, as clients want them."""
        return f"127.0.0.1:{self.port}"

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, port: int = 0
    ) -> Response:
        """One request on a fresh connection; a body that is no bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=30)
        try:
            data = body if isinstance(body, bytes | type(None)) else json.dumps(body).encode()
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            return Response(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def infer(self, model: str, body: Any, headers: dict[str, str] | None = None) -> Response:
        """One inference."""
        return self.ask("POST", f"/v2/models/{model}/infer", body, headers)

    def statistics(self, model: str) -> Any:
        """The statistics of a model's only version."""
        return self.ask("GET", f"/v2/models/{model}/stats").json["model_stats"][0]

    def connect(self) -> socket.socket:
        """A raw connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def talk(self, data: bytes) -> bytes:
        """Send bytes, say that no more come, and read until the server closes."""
        with self.connect() as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            return read_all(connection)

    def stop(self) -> int:
        """End with SIGTERM; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def read_all(connection: socket.socket) -> bytes:
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


@pytest.fixture(scope="session")
def backend_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH that registers the test backend through the entry-point group."""
    folder = tmp_path_factory.mktemp("backend")
    (folder / "echo_backend.py").write_text(BACKEND_SOURCE, encoding="utf-8")
    shutil.copy(Path(__file__).with_name("repeat_backend.py"), folder)
    info = folder / "echo_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: echo-backend\nVersion: 1.0\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(
        "[repobuild_serve.backends]\necho = echo_backend:Backend\nrepeat = repeat_backend:Backend\n",
        encoding="utf-8",
    )
    return folder


class Gate:
    """A place where the test backend waits until the test lets it pass; for tests that must not race."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gate"

    def reached(self) -> bool:
        """Whether somebody waits there, or did."""
        return self.path.with_suffix(".reached").exists()

    def open(self) -> None:
        """Let everybody pass, now and later."""
        self.path.with_suffix(".open").touch()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A gate: models wait there in ``open`` if their file says ``gate PATH``, in ``run`` by parameter."""
    made = Gate(tmp_path)
    yield made
    made.open()


@pytest.fixture
def services() -> Iterator[Callable[[Any], Any]]:
    """Makes what instances get from a server, for models that are loaded in this process."""
    import asyncio

    from repobuild_serve.core.internal import InternalCalls
    from repobuild_serve.core.router import Router
    from repobuild_serve.core.services import Services
    from repobuild_serve.profile import CURRENT

    loop = asyncio.new_event_loop()
    yield lambda models: Services(loop, InternalCalls(loop, Router()), models, CURRENT, {})
    loop.close()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """An empty repository."""
    folder = tmp_path / "repository"
    folder.mkdir()
    return Repository(folder)


@pytest.fixture
def load(
    repository: Repository, services: Callable[[Any], Any]
) -> Iterator[Callable[..., tuple[Any, list[str]]]]:
    """Loads the repository in this process; the models and the problems."""
    from repobuild_serve.core.router import Router
    from repobuild_serve.lifecycle import Control, ControlOptions, Models

    loaded: list[Any] = []

    def run(**options: Any) -> tuple[Any, list[str]]:
        models = Models()
        given = services(models)
        chosen = ControlOptions((repository.path,), **{"threads": 1, **options})
        control = Control(chosen, models, given, Router())
        problems = given.loop.run_until_complete(control.load_startup())
        loaded.append((given.loop, control))
        return models, problems

    yield run
    for loop, control in loaded:
        loop.run_until_complete(control.end())


@pytest.fixture(scope="session")
def launch(backend_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunningServer]:
    """Starts the server command without waiting for anything; ``without`` hides a package from it."""

    def start(path: Path, *options: str, without: str = "") -> RunningServer:
        folder = tmp_path_factory.mktemp("run")
        log = folder / "log"
        hide = f"import sys; sys.modules[{without!r}] = None; from repobuild_serve.cli import main; "
        program = ["-c", hide + "sys.exit(main())"] if without else ["-m", "repobuild_serve"]
        command = [sys.executable, *program, str(path)]
        if not any(option.startswith("--http-port") for option in options):
            command.append("--http-port=0")
        command += ["--metrics-port=0", f"--port-file={folder / 'ports'}", *options]
        environment = {**os.environ, "PYTHONPATH": str(backend_folder)}
        with log.open("wb") as stream:
            process = subprocess.Popen(command, stderr=stream, stdout=stream, env=environment)
        return RunningServer(process, log, {"file": folder / "ports"})

    return start


@pytest.fixture(scope="session")
def serving(launch: Callable[..., RunningServer]) -> Iterator[Callable[..., RunningServer]]:
    """Starts a server and waits until its ports listen; every server is stopped at the end."""
    servers: list[RunningServer] = []

    def start(path: Path, *options: str, without: str = "") -> RunningServer:
        server = launch(path, *options, without=without)
        servers.append(server)
        file = server.ports["file"]
        deadline = time.monotonic() + 60
        while not file.exists():
            assert server.process.poll() is None, server.log.read_text()
            assert time.monotonic() < deadline, server.log.read_text()
            time.sleep(0.02)
        server.ports = json.loads(file.read_text())
        assert server.ports["pid"] == server.process.pid
        return server

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


@pytest.fixture
def started(serving: Callable[..., RunningServer]) -> Iterator[Callable[..., RunningServer]]:
    """Starts servers that are stopped when the test ends."""
    servers: list[RunningServer] = []

    def start(repository: Repository, *options: str, without: str = "") -> RunningServer:
        servers.append(serving(repository.path, *options, without=without))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def server(serving: Callable[..., RunningServer], tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """One server with many models, shared by the tests that only ask."""
    path = tmp_path_factory.mktemp("shared") / "repository"
    path.mkdir()
    repository = Repository(path)
    for wire in ONNX_TYPES:
        repository.identity(f"id_{wire.lower()}", wire)
    repository.identity("strings", "BYTES", (1,))
    repository.identity(
        "variable", dims=(-1,), extra="dynamic_batching { max_queue_delay_microseconds: 1000 }"
    )
    repository.identity("whole", dims=(2, 2), batch=0)
    repository.identity("open_whole", "INT32", (-1,), batch=0)
    repository.identity(
        "batching", dims=(1,), batch=32, extra="dynamic_batching { max_queue_delay_microseconds: 2000 }"
    )
    repository.identity("versions", version=1, extra="version_policy { all {} }")
    repository.onnx("versions", identity_model("FP32", (2,), batched=True), 3)
    repository.onnx("sum", sum_model())
    repository.config(
        "sum",
        'backend: "onnxruntime"\nmax_batch_size: 4\n'
        'input [{ name: "A" data_type: TYPE_FP32 dims: [ 2 ] }, '
        '{ name: "B" data_type: TYPE_FP32 dims: [ 2 ] }]\n'
        'output [{ name: "SUM" data_type: TYPE_FP32 dims: [ 2 ] }, '
        '{ name: "DIFFERENCE" data_type: TYPE_FP32 dims: [ 2 ] }]\n',
    )
    repository.identity("classes", dims=(4,), extra="")
    folder = repository.path / "classes"
    text = (
        (folder / "config.pbtxt")
        .read_text()
        .replace('output [{ name: "OUT"', 'output [{ name: "OUT" label_filename: "labels.txt"')
    )
    (folder / "config.pbtxt").write_text(text)
    (folder / "labels.txt").write_text("zero\none\ntwo\n")
    repository.onnx("scalar", identity_model("FP32", (), batched=True))
    repository.config(
        "scalar",
        'backend: "onnxruntime"\nmax_batch_size: 8\n'
        'input [{ name: "IN" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } }]\n'
        'output [{ name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } }]\n',
    )
    repository.repeat("repeat")
    repository.repeat("rows", batch=8)
    repository.repeat("single", decoupled=False)
    repository.echo("echo")
    repository.echo("slow", delay_ms=150, extra="dynamic_batching { }")
    return serving(path, "--id=test server")


def sum_model() -> onnx.ModelProto:
    values = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2])
        for name in ("A", "B", "SUM", "DIFFERENCE")
    }
    nodes = [
        helper.make_node("Add", ["A", "B"], ["SUM"]),
        helper.make_node("Sub", ["A", "B"], ["DIFFERENCE"]),
    ]
    return model_of(nodes, [values["A"], values["B"]], [values["SUM"], values["DIFFERENCE"]])


@pytest.fixture(scope="session")
def tensor() -> Callable[..., dict[str, Any]]:
    """Makes an entry of ``inputs``."""

    def make(
        data: Any, shape: list[int] | None = None, name: str = "IN", wire: str = "FP32"
    ) -> dict[str, Any]:
        shape = list(np.shape(data)) if shape is None else shape
        return {"name": name, "datatype": wire, "shape": shape, "data": data}

    return make
