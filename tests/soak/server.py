"""The server under test: a process of its own, with its own temporary folder."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

READ_SECONDS = 3
WRITE_SECONDS = 5
_START_SECONDS = 120
_STOP_SECONDS = 45


@dataclass
class Server:
    """A running server.

    Attributes:
        process: Its process.
        log: What it wrote.
        scratch: Its TMPDIR.
        port: HTTP port.
        metrics_port: Port of the metrics.
        children: Process ids of all children ever seen.
    """

    process: subprocess.Popen[bytes]
    log: Path
    scratch: Path
    port: int = 0
    metrics_port: int = 0
    children: set[int] = field(default_factory=set)

    @classmethod
    def start(cls, folder: Path, repository: Path, plugins: Path, options: list[str]) -> Server:
        """Start it and wait until its ports listen.

        Args:
            folder: Where its files go.
            repository: The models.
            plugins: Folder for PYTHONPATH.
            options: Further words of the command line.

        Raises:
            RuntimeError: It did not start; the text has its log.
        """
        scratch, log, ports = folder / "tmp", folder / "log", folder / "ports"
        scratch.mkdir()
        command = [
            *(sys.executable, "-m", "repobuild_serve", str(repository), "--http-port=0", "--metrics-port=0"),
            *(f"--port-file={ports}", f"--http-read-timeout-secs={READ_SECONDS}"),
            *(f"--http-write-timeout-secs={WRITE_SECONDS}", *options),
        ]
        paths = [str(plugins), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(scratch)}
        with log.open("wb") as stream:
            process = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment)
        server = cls(process, log, scratch)
        deadline = time.monotonic() + _START_SECONDS
        while not ports.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                process.wait()
                raise RuntimeError(f"the server did not start:\n{log.read_text()[-5000:]}")
            time.sleep(0.05)
        found = json.loads(ports.read_text())
        server.port, server.metrics_port = found["http"], found["metrics"]
        return server

    def python_children(self) -> list[psutil.Process]:
        """The processes of its python instances."""
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if any("python_child" in word for word in child.cmdline()):
                    found.append(child)
                    self.children.add(child.pid)
            except psutil.Error:
                continue
        return found

    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    async def stop(self) -> list[str]:
        """Stop it with SIGTERM.

        Returns:
            What was wrong with its end and in its log.
        """
        problems: list[str] = []
        if self.alive():
            self.python_children()
            self.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while self.alive() and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        if self.alive():
            problems.append(f"it did not end within {_STOP_SECONDS} s of SIGTERM")
            self.process.kill()
        if status := self.process.wait():
            problems.append(f"it ended with status {status}")
        problems += [f"child {pid} outlived it" for pid in sorted(self.children) if _is_child(pid)]
        problems += [
            f"{name} was left in its TMPDIR" for name in sorted(path.name for path in self.scratch.iterdir())
        ]
        return problems + self.log_problems()

    def log_problems(self) -> list[str]:
        """What the log has that it must not have: signs of bugs of the server."""
        signs = (
            "Traceback (most recent",
            "internal error",
            "unexpected error",
            "was never retrieved",
            "never awaited",
        )
        text = self.log.read_text("utf-8", "replace")
        lines = text.splitlines()
        found = [number for number, line in enumerate(lines) if any(sign in line for sign in signs)]
        return ["log: " + " | ".join(lines[max(0, number - 1) : number + 25]) for number in found[:5]]


def _is_child(pid: int) -> bool:
    try:
        return any("python_child" in word for word in psutil.Process(pid).cmdline())
    except psutil.Error:
        return False
