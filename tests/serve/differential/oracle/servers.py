"""Starts the real server and the bundled one, with the same call."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from oracle.wire import Answer, Request, send

ROOT = Path(__file__).parents[4]
INSTALLED = ROOT / "build" / "tritonserver"
START_LIMIT_S = 120
STOP_LIMIT_S = 40


class StartFailed(Exception):
    """The process ended before it served."""


@dataclass
class Server:
    """A server process in a group of its own."""

    kind: str
    process: subprocess.Popen[bytes]
    log: Path
    repository: Path
    http: int = 0
    metrics: int = 0

    def ask(self, request: Request) -> Answer:
        """One request on a fresh connection; of a path that starts with ``metrics:``, on the metrics port."""
        port = self.http
        if request.path.startswith("metrics:"):
            port = self.metrics
            request = Request(request.method, request.path.removeprefix("metrics:"), request.body)
        return send(port, request)

    def stop(self) -> None:
        """End with SIGTERM, and whatever is left of the group with SIGKILL."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_LIMIT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.kind == "real":  # a stub that is killed leaves its shared memory behind
            for region in Path("/dev/shm").glob(f"{_region_prefix(self.http)}*"):
                region.unlink(missing_ok=True)


def unavailable() -> str | None:
    """Why the real server cannot run here, if it cannot."""
    if (INSTALLED / ".installed").exists():
        return None
    note = INSTALLED / "unavailable.txt"
    return note.read_text(encoding="utf-8") if note.exists() else "run `make build/tritonserver/.installed`"


@contextlib.contextmanager
def serve(kind: str, repository: Path, *options: str) -> Iterator[Server]:
    """A running ``real`` or ``ours`` server on a repository, until the block ends.

    The options are Triton's: both commands take them.

    Raises:
        StartFailed: The process ended first.
        TimeoutError: It did not answer in time.
    """
    with tempfile.TemporaryDirectory(prefix="differential-") as name:
        server = STARTERS[kind](repository, Path(name), options)
        try:
            _wait(server, Path(name))
            yield server
        finally:
            server.stop()


def _start_real(repository: Path, folder: Path, options: tuple[str, ...]) -> Server:
    triton = INSTALLED / "wheel" / "pytriton" / "tritonserver"
    backends = folder / "backends"
    shutil.copytree(triton / "backends", backends)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy2(
        triton / "python_backend_stubs" / version / "triton_python_backend_stub", backends / "python"
    )
    http, grpc, metrics = _free_ports(3)
    libraries = [INSTALLED / "wheel" / "nvidia_pytriton.libs", Path(sysconfig.get_config_var("LIBDIR"))]
    # The stub asks the first python3 of PATH where its packages are.
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV_"))},
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
        "VIRTUAL_ENV": str(INSTALLED / "stub"),
        "OPENBLAS_NUM_THREADS": "1",
        "PATH": os.pathsep.join([str(INSTALLED / "stub" / "bin"), os.environ["PATH"]]),
    }
    command = [
        str(triton / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        *(f"--{port}-address=127.0.0.1" for port in ("http", "grpc", "metrics")),
        f"--http-port={http}",
        f"--grpc-port={grpc}",
        f"--metrics-port={metrics}",
        f"--backend-config=python,shm-region-prefix-name={_region_prefix(http)}",
        "--backend-config=python,shm-default-byte-size=1048576",
        *options,
    ]
    return Server("real", _spawn(command, folder, environment), folder / "log", repository, http, metrics)


def _start_ours(repository: Path, folder: Path, options: tuple[str, ...]) -> Server:
    command = [sys.executable, "-m", "repobuild_serve", str(repository), "--compat=24.10"]
    command += ["--http-port=0", "--grpc-port=0", "--metrics-port=0", f"--port-file={folder / 'ports'}"]
    process = _spawn([*command, *options], folder, dict(os.environ))
    return Server("ours", process, folder / "log", repository)


STARTERS: dict[str, Callable[[Path, Path, tuple[str, ...]], Server]] = {
    "real": _start_real,
    "ours": _start_ours,
}


def _region_prefix(port: int) -> str:
    return f"differential_{port}_"


def _spawn(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )


def _wait(server: Server, folder: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    ports = folder / "ports"
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            text = server.log.read_text(encoding="utf-8", errors="replace")
            raise StartFailed(f"{server.kind} server ended with {server.process.returncode}:\n{text[-6000:]}")
        if server.kind == "ours" and ports.exists():
            found = json.loads(ports.read_text(encoding="utf-8"))
            server.http, server.metrics = found["http"], found["metrics"]
            return
        if server.kind == "real" and _listens(server.http):
            return
        time.sleep(0.05)
    text = server.log.read_text(encoding="utf-8", errors="replace")
    raise TimeoutError(f"{server.kind} server did not start in {START_LIMIT_S} s:\n{text[-6000:]}")


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        return send(port, Request("GET", "/v2/health/live"), timeout=5).status == 200
    return False


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for entry in sockets:
            entry.bind(("127.0.0.1", 0))
        return [entry.getsockname()[1] for entry in sockets]
    finally:
        for entry in sockets:
            entry.close()
