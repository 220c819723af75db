"""The parent's side of the child process: starts it, asks it, and names whatever goes wrong with it."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from repobuild.errors import EnvironmentLacking, Evidence, RepobuildError, error_from_dict, from_oserror
from repobuild.worker.environment import child_environment
from repobuild.worker.guard import Guard
from repobuild.worker.limits import TIMEOUT_VARIABLE, Limits

START_SECONDS = 300.0
LEAVE_SECONDS = 2.0
DIE_SECONDS = 10.0
POLL_SECONDS = 0.1
GUARD_SECONDS = 0.2
LONGEST_ANSWER = 64 << 20
LOG_TAIL = 2000
PLACE = "child"
"""Name of the child's own folder."""


class Worker:
    """A child process that answers one JSON line with one JSON line, over two pipes of its own.

    Its environment holds only what Python needs (no credentials, no home), and its standard output and error
    go to a log whose tail becomes evidence. What it may write lies in a folder of its own, to which this
    process writes nothing, since a link in it would lead anywhere; what it hands back is moved out of there
    before it is read (:meth:`take`). It leads a process group that is killed at the end, and that
    code of a model cannot leave where :mod:`repobuild.worker.sandbox` says so.

    Args:
        folder: Existing folder for its log and for the folder that is the child's own, which is its working
            directory, home and place for temporary files.
        doing: What it is for, to complete "while ...".
        limits: What it may use; less where the system's hard limits are lower. By default those of
            :meth:`repobuild.worker.limits.Limits.from_environment`.
        explain: Adds to an error of a call what the caller knows about the model.

    Attributes:
        place: The child's own folder.
        sandbox: What of :class:`repobuild.worker.sandbox.Sandbox` was reached; empty before the first call.

    Raises:
        EnvironmentLacking: The system refuses another process, or the log.
        UsageProblem: An environment variable that sets a limit cannot be understood.
    """

    def __init__(
        self,
        folder: Path,
        doing: str,
        limits: Limits | None = None,
        explain: Callable[[RepobuildError], RepobuildError] | None = None,
    ) -> None:
        self.sandbox: dict[str, str] = {}
        self._doing = doing
        self._explain = explain
        self._limits = limits or Limits.from_environment()
        self._memory = self._limits.memory
        self._timeout = START_SECONDS
        self._folder = folder
        self._log = folder / "worker.log"
        self.place = folder / PLACE
        self._started = False
        self._closed = False
        self._asked = 0
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as theirs:
            try:
                self.place.mkdir(exist_ok=True)
                ask_read, self._ask = os.pipe()
                theirs.callback(os.close, ask_read)
                undo.callback(os.close, self._ask)
                self._answer, answer_write = os.pipe()
                theirs.callback(os.close, answer_write)
                undo.callback(os.close, self._answer)
                with self._log.open("wb") as log:
                    self._process = subprocess.Popen(
                        [
                            sys.executable, "-P", "-m", "repobuild.worker.child",
                            str(ask_read), str(answer_write), json.dumps(self._limits.to_dict()),
                        ],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        cwd=self.place,
                        env=child_environment(self.place),
                        pass_fds=(ask_read, answer_write),
                        start_new_session=True,
                    )  # fmt: skip
            except OSError as problem:
                raise from_oserror(problem, "starting the child process that loads the model") from problem
            undo.pop_all()
        self._pidfd = _pidfd(self._process.pid)
        self._guard = Guard(self._process.pid, folder, doing, self._limits)

    def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Ask one question and wait for the answer.

        Raises:
            RepobuildError: What the child found wrong, as it raised it.
            EnvironmentLacking: The child did not start, died, ran out of memory, did not answer in time, or
                something else than its answer came over the pipe.
        """
        try:
            return self._call(operation, parameters)
        except RepobuildError as problem:
            if self._explain is None:
                raise
            raise self._explain(problem) from None

    def _call(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        if not self._started:
            self._greet()
            self._started = True
        self._timeout = self._limits.seconds_for(operation)
        self._asked += 1
        self._guard.begin()
        question = {"operation": operation, "number": self._asked, **parameters}
        try:
            os.write(self._ask, json.dumps(question).encode() + b"\n")
        except BrokenPipeError:
            raise self._died() from None
        line = self._read_line()
        try:
            reply = _reply(line, self._asked)
            problem = error_from_dict(reply["error"]) if "error" in reply else None
            answer: dict[str, Any] = {} if problem else dict(reply["answer"])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise self._garbled(line) from None
        if problem:
            raise problem
        return answer

    def take(self, name: str, to: Path) -> Path:
        """Move a file that the child wrote out of its reach.

        Args:
            name: The file's name in the child's own folder.
            to: Where it goes, on the same disk.

        Raises:
            EnvironmentLacking: ``worker-garbled``: there is no regular file of that name.
        """
        try:
            (self.place / name).replace(to)
            mode = to.lstat().st_mode
        except OSError as problem:
            raise self.unusable(name, problem.strerror or str(problem)) from None
        if not stat.S_ISREG(mode):
            with contextlib.suppress(OSError):
                to.unlink()
            raise self.unusable(name, "it is no regular file")
        return to

    def unusable(self, name: str, why: str) -> RepobuildError:
        """The error for a file of the child that is not what it should be."""
        return EnvironmentLacking(
            "worker-garbled",
            f"the child process handed back no usable {name} while {self._doing}",
            (Evidence(why), *self._log_tail()),
            "code in the model meddles with the files of its conversion; nothing was written",
        )

    def close(self) -> None:
        """Let the child leave by itself, then end it and everything in its process group.

        Leaving by itself, it removes its own temporary files and semaphores.
        """
        if self._closed:
            return
        self._closed = True
        os.close(self._ask)
        os.close(self._answer)
        try:
            self._status(LEAVE_SECONDS)
        finally:
            self._end_group()
            self._process.wait()
            if self._pidfd is not None:
                os.close(self._pidfd)

    def _end_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _greet(self) -> None:
        """Read the child's first words: the limit of memory that it works under, and its sandbox."""
        line = self._read_line()
        try:
            said = json.loads(line)
            self._memory = int(said["ready"])
            self.sandbox = {str(k): str(v) for k, v in said["sandbox"].items()}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise self._garbled(line) from None

    def _read_line(self) -> bytes:
        """One line from the child; a pipe that somebody else holds open is no reason to wait for the dead."""
        deadline = time.monotonic() + self._timeout
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._answer, selectors.EVENT_READ)
            if self._pidfd is not None:
                selector.register(self._pidfd, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._hung()
                ended = self._status(0) is not None
                poll = POLL_SECONDS if self._pidfd is None else GUARD_SECONDS
                wait = 0 if ended else min(left, poll)
                ready = [key.fd for key, _ in selector.select(wait)]
                if self._answer in ready:
                    piece = os.read(self._answer, 1 << 16)
                    if not piece:
                        raise self._died()
                    line += piece
                    if len(line) > LONGEST_ANSWER:
                        raise self._garbled(line)
                elif ended:
                    raise self._died()
                elif trouble := self._guard.trouble():
                    self._end_group()
                    raise trouble
        return line

    def _status(self, timeout: float) -> int | None:
        """How the child ended, as ``Popen.returncode`` has it, or ``None`` while it runs.

        The child is not reaped, so that its process group keeps its number until it is killed.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return self._process.wait()
            if ended is not None:
                return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            if time.monotonic() >= deadline:
                return None
            time.sleep(POLL_SECONDS / 10)

    def _hung(self) -> RepobuildError:
        if not self._started:
            return self._not_started(f"not ready within {self._timeout:.0f} s")
        return EnvironmentLacking(
            "worker-timeout",
            f"no answer within {self._timeout:.0f} s while {self._doing}",
            self._log_tail(),
            "the model hangs or is very slow; try it on fewer samples in Python first, or set"
            f" {TIMEOUT_VARIABLE} to more seconds",
        )

    def _died(self) -> RepobuildError:
        status = self._status(DIE_SECONDS)
        if status is None:
            return self._hung()
        how = _signal_name(-status) if status < 0 else f"exit status {status}"
        if not self._started:
            return self._not_started(how)
        if status == -signal.SIGXCPU:
            return EnvironmentLacking(
                "worker-cpu-time",
                f"the child process used up its processor time while {self._doing}",
                self._log_tail(),
                "the model hangs or is very slow; try it on fewer samples in Python first",
            )
        return EnvironmentLacking(
            "worker-crashed",
            f"the child process died ({how}) while {self._doing}",
            self._log_tail(),
            "code in the model ended or crashed it, or it needed more than"
            f" {self._memory / (1 << 30):.1f} GiB of memory; nothing was written",
        )

    def _not_started(self, how: str) -> RepobuildError:
        return EnvironmentLacking(
            "worker-start-failed",
            f"the child process that loads the model did not start ({how})",
            self._log_tail(),
            "nothing of the model had run yet; look at the Python installation, PYTHONPATH and ulimit",
        )

    def _garbled(self, line: bytes) -> RepobuildError:
        return EnvironmentLacking(
            "worker-garbled",
            f"the child process sent something that is no answer while {self._doing}",
            (Evidence(f"it sent {line[:200]!r}"), *self._log_tail()),
            "code in the model writes to file descriptors that are not its own; nothing was written",
        )

    def _log_tail(self) -> tuple[Evidence, ...]:
        try:
            with self._log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(0, size - LOG_TAIL))
                text = log.read().decode("utf-8", "replace").strip()
        except OSError:
            return ()
        return (Evidence(f"last words of the child process:\n{text}"),) if text else ()


def _reply(line: bytes, number: int) -> dict[str, Any]:
    reply: dict[str, Any] = json.loads(line)
    if line.count(b"\n") > 1:
        raise ValueError("there is more than one line")
    if reply["number"] != number:
        raise ValueError(f"this answers question {reply['number']}, not {number}")
    return reply


def _pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends, where the system has such."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def _signal_name(number: int) -> str:
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:
        return f"signal {number}"
