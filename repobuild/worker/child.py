"""The child's side: ``python -m repobuild.worker.child ASK_FD ANSWER_FD MEMORY_BYTES``.

This is the only place where code of a model file runs. It answers ``load``, ``export`` and ``predict``.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repobuild.errors import ConversionFailed, EnvironmentLacking, RepobuildError, evidence
from repobuild.worker.arrays import load_batch, save_batch
from repobuild.worker.sklearn_model import SklearnModel


def main(arguments: list[str]) -> int:
    """Answer questions until the pipe closes.

    Args:
        arguments: Descriptor to read questions from, descriptor to write answers to, limit of memory.
    """
    ask, answer, memory = (int(a) for a in arguments)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    desk = _Desk()
    with (
        os.fdopen(ask, "r", encoding="utf-8") as questions,
        os.fdopen(answer, "w", encoding="utf-8") as answers,
    ):
        for line in questions:
            answers.write(json.dumps(_reply(desk, json.loads(line))) + "\n")
            answers.flush()
    return 0


class _Desk:
    """Holds the loaded model between questions."""

    def __init__(self) -> None:
        self._model: SklearnModel | None = None

    def load(self, path: str, given: str, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._model = SklearnModel.load(Path(path), given, inputs)
        return self._model.description()

    def export(self, opset: int, to: str) -> dict[str, Any]:
        assert self._model is not None
        return {"answers": self._model.export(opset, Path(to))}

    def predict(self, batch: str, to: str, one_by_one: bool) -> dict[str, Any]:
        assert self._model is not None
        save_batch(Path(to), self._model.predict(load_batch(Path(batch)), one_by_one=one_by_one))
        return {}


def _reply(desk: _Desk, question: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {k: v for k, v in question.items() if k != "operation"}
    try:
        return {"answer": getattr(desk, question["operation"])(**parameters)}
    except RepobuildError as problem:
        return {"error": problem.to_dict()}
    except MemoryError:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0] >> 30
        return {
            "error": EnvironmentLacking(
                "worker-out-of-memory",
                f"the model needs more than {limit} GiB of memory to {question['operation']}",
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
