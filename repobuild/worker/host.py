"""The parent's side of the child process: starts it, asks it, and names whatever goes wrong with it."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from repobuild.errors import EnvironmentLacking, Evidence, RepobuildError, error_from_dict

TIMEOUT_SECONDS = 600.0
MEMORY_BYTES = 16 << 30
LOG_TAIL = 2000
KEPT_ENVIRONMENT = (
    "PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "SYSTEMROOT",
    "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE",
)  # fmt: skip


class Worker:
    """A child process that answers one JSON line with one JSON line, over two pipes of its own.

    Its environment holds only what Python needs (no credentials, no home), its standard output and error go
    to a log whose tail becomes evidence, and it leads a process group, so that nothing of it outlives the
    build.

    Args:
        folder: Existing folder for its log; also its working directory.
        doing: What it is for, to complete "while ...".
        timeout: Seconds that one question may take.
        memory: Bytes of address space that it may use.
    """

    def __init__(
        self,
        folder: Path,
        doing: str,
        timeout: float = TIMEOUT_SECONDS,
        memory: int = MEMORY_BYTES,
    ) -> None:
        self._doing = doing
        self._timeout = timeout
        self._memory = memory
        self._log = folder / "worker.log"
        ask_read, self._ask = os.pipe()
        self._answer, answer_write = os.pipe()
        environment = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
        environment |= {"HOME": str(folder), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [
                        sys.executable, "-P", "-m", "repobuild.worker.child",
                        str(ask_read), str(answer_write), str(memory),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    env=environment,
                    pass_fds=(ask_read, answer_write),
                    start_new_session=True,
                )  # fmt: skip
        finally:
            os.close(ask_read)
            os.close(answer_write)

    def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Ask one question and wait for the answer.

        Raises:
            RepobuildError: What the child found wrong, as it raised it.
            EnvironmentLacking: The child died, ran out of memory or did not answer in time.
        """
        question = json.dumps({"operation": operation, **parameters}).encode() + b"\n"
        try:
            os.write(self._ask, question)
        except BrokenPipeError:
            raise self._died() from None
        reply = json.loads(self._read_line())
        if "error" in reply:
            raise error_from_dict(reply["error"])
        answer: dict[str, Any] = reply["answer"]
        return answer

    def close(self) -> None:
        """End the child and everything that it started."""
        for pipe in (self._ask, self._answer):
            with contextlib.suppress(OSError):
                os.close(pipe)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _read_line(self) -> bytes:
        deadline = time.monotonic() + self._timeout
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._answer, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise self._hung()
                piece = os.read(self._answer, 1 << 16)
                if not piece:
                    raise self._died()
                line += piece
        return line

    def _hung(self) -> RepobuildError:
        return EnvironmentLacking(
            "worker-timeout",
            f"no answer within {self._timeout:.0f} s while {self._doing}",
            self._log_tail(),
            "the model hangs or is very slow; try it on fewer samples in Python first",
        )

    def _died(self) -> RepobuildError:
        try:
            status = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return self._hung()
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return EnvironmentLacking(
            "worker-crashed",
            f"the child process died ({how}) while {self._doing}",
            self._log_tail(),
            "code in the model ended or crashed it, or it needed more than"
            f" {self._memory >> 30} GiB of memory; nothing was written",
        )

    def _log_tail(self) -> tuple[Evidence, ...]:
        with self._log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - LOG_TAIL))
            text = log.read().decode("utf-8", "replace").strip()
        return (Evidence(f"last words of the child process:\n{text}"),) if text else ()
