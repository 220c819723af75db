"""The child's side: ``python -m repobuild.worker.child ASK_FD ANSWER_FD LIMITS``.

This is the only place where code of a model file runs. Questions are answered by the methods of
:class:`~repobuild.worker.rows_desk.RowsDesk`, :class:`~repobuild.worker.tensor_desk.TensorDesk` and
:class:`~repobuild.worker.script_desk.ScriptDesk`, and of those for steps, graphs and work on graphs.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import queue
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from repobuild.errors import ConversionFailed, EnvironmentLacking, RepobuildError, evidence
from repobuild.worker.graph_desk import GraphDesk
from repobuild.worker.limits import Limits
from repobuild.worker.rows_desk import RowsDesk
from repobuild.worker.sandbox import enter
from repobuild.worker.script_desk import ScriptDesk
from repobuild.worker.step_desk import StepDesk
from repobuild.worker.task_desk import TaskDesk
from repobuild.worker.tensor_desk import TensorDesk

LEAVE_SECONDS = 2.0
CPU_GRACE = 5


def main(arguments: list[str]) -> int:
    """Enter the sandbox, say so, then answer questions until the pipe closes.

    The first words are ``{"ready": bytes of memory that are allowed, "sandbox": what was reached}``.

    Args:
        arguments: Descriptor to read questions from, descriptor to write answers to, and what
            :meth:`repobuild.worker.limits.Limits.to_dict` gives, as JSON.
    """
    ask, answer = (int(a) for a in arguments[:2])
    limits = Limits(**json.loads(arguments[2]))
    limit = _apply(limits)
    sandbox = enter([str(Path.cwd())])
    for pipe in (ask, answer):
        os.set_inheritable(pipe, False)
    atexit.register(_end_group, signal.SIGTERM)
    questions: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(ask, questions), daemon=True).start()
    desks = (RowsDesk(), TensorDesk(), ScriptDesk(), TaskDesk(), StepDesk(), GraphDesk())
    with os.fdopen(answer, "w", encoding="utf-8") as answers:
        _say(answers, {"ready": limit, "sandbox": sandbox.to_dict()})
        while line := questions.get():
            question = json.loads(line)
            number = question.pop("number")
            _allow_cpu(limits, question["operation"])
            _say(answers, {"number": number, **_reply(desks, question)})
    return 0


def _apply(limits: Limits) -> int:
    """Set the limits that the system keeps for each process; answers with that of memory, in bytes.

    A limit of one byte on core files, unlike one of none, also holds where they go to a program (core(5)).
    """
    _limit(resource.RLIMIT_CORE, 1)
    _limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    _limit(resource.RLIMIT_NOFILE, limits.open_files)
    _limit(resource.RLIMIT_CPU, limits.cpu_seconds + CPU_GRACE)
    return _limit(resource.RLIMIT_AS, limits.memory)


def _allow_cpu(limits: Limits, operation: str) -> None:
    """Let one question take no more processor time than all processors have while it may take.

    The parent keeps the time on the clock; this one also ends a busy child whose parent died.
    """
    used, hard = sum(os.times()[:2]), resource.getrlimit(resource.RLIMIT_CPU)[1]
    more = used + limits.seconds_for(operation) * (os.cpu_count() or 1) + CPU_GRACE
    resource.setrlimit(resource.RLIMIT_CPU, (min(int(more), limits.cpu_seconds, hard), hard))


def _limit(what: int, value: int) -> int:
    """Set a limit to ``value``, or to the hard limit where that is lower."""
    hard = resource.getrlimit(what)[1]
    limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (limit, limit))
    return limit


def _listen(ask: int, questions: queue.SimpleQueue[bytes | None]) -> None:
    """Hand on questions; once the parent closes the pipe or dies, see to it that this process ends too.

    Runs in a thread, so that it notices while the model is busy. Native code that keeps the interpreter's
    lock delays it until that code returns.
    """
    try:
        with contextlib.suppress(OSError), os.fdopen(ask, "rb") as pipe:
            for line in pipe:
                questions.put(line)
        questions.put(None)
        time.sleep(LEAVE_SECONDS)
    finally:
        _end_group(signal.SIGKILL)
        os._exit(1)


def _end_group(how: signal.Signals) -> None:
    """Signal everything in the process group that this process leads; it takes only SIGKILL itself."""
    if os.getpgrp() != os.getpid():
        return
    if how != signal.SIGKILL:
        signal.signal(how, signal.SIG_IGN)
    os.killpg(os.getpid(), how)


def _say(answers: TextIO, message: Mapping[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _operation(desks: Sequence[object], name: str) -> Callable[..., dict[str, Any]]:
    """The method of one of the desks that answers a question."""
    found: Callable[..., dict[str, Any]] = next(
        method for desk in desks if (method := getattr(desk, name, None)) is not None
    )
    return found


def _reply(desks: Sequence[object], question: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {k: v for k, v in question.items() if k != "operation"}
    try:
        return {"answer": _operation(desks, question["operation"])(**parameters)}
    except RepobuildError as problem:
        return {"error": problem.to_dict()}
    except MemoryError:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0] / (1 << 30)
        return {
            "error": EnvironmentLacking(
                "worker-out-of-memory",
                f"the model needs more than {limit:.1f} GiB of memory to {question['operation']}",
                (),
                "use fewer samples or a smaller model, or raise REPOBUILD_WORKER_MEMORY",
            ).to_dict()
        }
    except Exception as problem:  # noqa: BLE001 - model code raises anything; all of it becomes an answer
        if isinstance(problem, OSError) and problem.errno == errno.EFBIG:
            return {"error": _file_too_large(question["operation"]).to_dict()}
        last = traceback.format_exception(problem)[-1].strip()
        frames = [f"{f.filename}:{f.lineno} in {f.name}" for f in traceback.extract_tb(problem.__traceback__)]
        return {
            "error": ConversionFailed(
                "source-failed",
                f"the model's own code failed to {question['operation']}",
                evidence([last, *frames[-1:]]),
                _advice(problem),
            ).to_dict()
        }


def _advice(problem: Exception) -> str:
    if any(Path(f.filename).name == "socket.py" for f in traceback.extract_tb(problem.__traceback__)):
        return "code of a model may not use the network here; save the model with all that it needs"
    return "see whether the same call works in Python with the same samples"


def _file_too_large(operation: str) -> RepobuildError:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0] / (1 << 30)
    return EnvironmentLacking(
        "worker-file-too-large",
        f"the model wrote a file of more than {limit:.1f} GiB to {operation}",
        (),
        "code in the model writes without end, or the model is larger than repobuild exports",
    )


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main(sys.argv[1:]))
