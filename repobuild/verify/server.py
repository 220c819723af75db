"""Starts the bundled server on a repository and stops it again."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from repobuild.errors import EnvironmentLacking, RepobuildError, VerificationFailed, evidence, from_oserror
from repobuild.interrupts import deferred_interrupts

START_SECONDS = 120.0
STOP_SECONDS = 30.0
DIE_SECONDS = 2.0
LOG_LINES = 12
LEAST_FREE_BYTES = 1 << 16


class BundledServer:
    """``python -m repobuild_serve`` on an ephemeral port of 127.0.0.1, as a context manager.

    The server's standard input is a pipe from this process, and its end stops the server: a build that is
    killed leaves no server behind.

    Args:
        repository: The model repository to serve.
        folder: Existing folder for its log and port file.
        start_seconds: How long loading and warm-up may take.
    """

    def __init__(self, repository: Path, folder: Path, start_seconds: float = START_SECONDS) -> None:
        self._log = folder / "server.log"
        self._ports = folder / "ports.json"
        self._start_seconds = start_seconds
        self._command = [
            sys.executable, "-P", "-m", "repobuild_serve", str(repository),
            "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0", "--port-file", str(self._ports),
            "--stop-with-stdin",
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def __enter__(self) -> Self:
        try:
            with deferred_interrupts(), self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
                )
            self.address = f"127.0.0.1:{self._wait_for_port()}"
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server, if it has not ended already; what it has in hand is answered or broken off."""
        process = self._process
        if process is None:
            return
        try:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdin is not None:
                process.stdin.close()

    def died(self) -> VerificationFailed | None:
        """The error to raise when the server has ended on its own, ``None`` while it runs.

        The connections of a process that dies break a moment before it is seen to have ended.
        """
        assert self._process is not None
        try:
            status = self._process.wait(DIE_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        return VerificationFailed(
            "server-died",
            f"the bundled server ended ({_how(status)}) during verification",
            evidence(self.log_tail()),
            "its last lines are above; the repository was not changed",
        )

    def _refused(self, status: int) -> RepobuildError:
        lines = self.log_tail()
        lacking = not lines or status == EnvironmentLacking.exit_code
        if lacking and shutil.disk_usage(self._log.parent).free < LEAST_FREE_BYTES:
            full = OSError(errno.ENOSPC, "no space left for the server's log and ports", str(self._log))
            return from_oserror(full, "starting the bundled server")
        return VerificationFailed(
            "server-refused",
            f"the bundled server does not load the staged model ({_how(status)})",
            evidence([line for line in lines if not line.lstrip().startswith("hint:")]),
            "its last lines are above; the repository was not changed",
        )

    def log_tail(self) -> list[str]:
        """The last lines that the server wrote."""
        return self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-LOG_LINES:]

    def _wait_for_port(self) -> int:
        assert self._process is not None
        deadline = time.monotonic() + self._start_seconds
        while time.monotonic() < deadline:
            if self._ports.exists():
                return int(json.loads(self._ports.read_text(encoding="utf-8"))["http"])
            status = self._process.poll()
            if status is not None:
                raise self._refused(status)
            time.sleep(0.02)
        raise VerificationFailed(
            "server-slow",
            f"the bundled server was not ready within {self._start_seconds:.0f} s",
            evidence(self.log_tail()),
            "loading or warm-up takes too long on this machine",
        )


def _how(status: int) -> str:
    """How a process ended, from ``Popen.returncode``."""
    return f"exit status {status}" if status >= 0 else f"signal {-status}"
