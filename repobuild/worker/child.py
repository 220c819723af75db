"""The child's side: ``python -m repobuild.worker.child ASK_FD ANSWER_FD MEMORY_BYTES``.

This is the only place where code of a model file runs. It answers ``load``, ``export`` and ``predict``.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from repobuild.errors import ConversionFailed, EnvironmentLacking, RepobuildError, evidence
from repobuild.worker.arrays import load_batch, save_batch, writing
from repobuild.worker.loading import load_estimator
from repobuild.worker.sklearn_model import SklearnModel

LEAVE_SECONDS = 2.0


def main(arguments: list[str]) -> int:
    """Say the limit of memory as ``{"ready": bytes}``, then answer questions until the pipe closes.

    Args:
        arguments: Descriptor to read questions from, descriptor to write answers to, limit of memory.
    """
    ask, answer, memory = (int(a) for a in arguments)
    limit = _limit_memory(memory)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for pipe in (ask, answer):
        os.set_inheritable(pipe, False)
    atexit.register(_end_group, signal.SIGTERM)
    questions: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(ask, questions), daemon=True).start()
    desk = _Desk()
    with os.fdopen(answer, "w", encoding="utf-8") as answers:
        _say(answers, {"ready": limit})
        while line := questions.get():
            question = json.loads(line)
            number = question.pop("number")
            _say(answers, {"number": number, **_reply(desk, question)})
    return 0


def _limit_memory(memory: int) -> int:
    """Limit the address space to ``memory`` bytes, or to the hard limit where that is lower."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
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


class _Desk:
    """Holds the loaded model between questions."""

    def __init__(self) -> None:
        self._model: SklearnModel | None = None

    def load(
        self,
        path: str,
        given: str,
        inputs: list[dict[str, Any]],
        kind: str = "joblib",
        method: str | None = None,
        layout: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        estimator, notes = load_estimator(kind, Path(path), given)
        self._model = SklearnModel(estimator, given, inputs, notes, method, layout)
        return self._model.description()

    def export(self, opset: int, to: str) -> dict[str, Any]:
        assert self._model is not None
        return {"answers": self._model.export(opset, Path(to))}

    def predict(
        self, batch: str, to: str, one_by_one: bool, answers: list[str] | None = None
    ) -> dict[str, Any]:
        assert self._model is not None
        found = self._model.predict(load_batch(Path(batch)), one_by_one=one_by_one, answers=answers)
        with writing("the model's answers"):
            save_batch(Path(to), found)
        return {}


def _reply(desk: _Desk, question: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {k: v for k, v in question.items() if k != "operation"}
    try:
        return {"answer": getattr(desk, question["operation"])(**parameters)}
    except RepobuildError as problem:
        return {"error": problem.to_dict()}
    except MemoryError:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0] / (1 << 30)
        return {
            "error": EnvironmentLacking(
                "worker-out-of-memory",
                f"the model needs more than {limit:.1f} GiB of memory to {question['operation']}",
                (),
                "use fewer samples or a smaller model",
            ).to_dict()
        }
    except Exception as problem:  # noqa: BLE001 - model code raises anything; all of it becomes an answer
        last = traceback.format_exception(problem)[-1].strip()
        frames = [f"{f.filename}:{f.lineno} in {f.name}" for f in traceback.extract_tb(problem.__traceback__)]
        return {
            "error": ConversionFailed(
                "source-failed",
                f"the model's own code failed to {question['operation']}",
                evidence([last, *frames[-1:]]),
                "see whether the same call works in Python with the same samples",
            ).to_dict()
        }


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main(sys.argv[1:]))
