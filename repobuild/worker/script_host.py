"""The parent's side of :class:`repobuild.worker.script_desk.ScriptDesk`: one request, one answer."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

from repobuild.tensors import Batch
from repobuild.worker.arrays import writing
from repobuild.worker.host import Worker
from repobuild.worker.many import load_many, save_many

QUESTION = "script-question.npz"
ANSWER = "script-answer.npz"
MALFORMED = (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, BadZipFile, zlib.error)


def ask_script(child: Worker, folder: Path, names: Sequence[str], request: Batch) -> Batch | str:
    """Ask the script that a child process has open.

    Args:
        child: The process.
        folder: Existing private folder for what goes to it.
        names: Names of the outputs, in the order in which it was opened with them.
        request: One array an input, as it comes over the wire.

    Returns:
        One array an output, or why the script refuses the request.

    Raises:
        EnvironmentLacking: The child died, or handed back something else.
    """
    question = folder / QUESTION
    with writing("the request for the TorchScript"):
        save_many(question, [request])
    reply = child.call("ask_script", requests=str(question), to=str(child.place / ANSWER))
    file = child.take(ANSWER, folder / ANSWER)
    try:
        (found,), (error,) = load_many(file), reply["errors"]
        if found is None:
            return str(error)
        return {name: found[str(i)] for i, name in enumerate(names)}
    except MALFORMED as problem:
        raise child.unusable(ANSWER, f"{type(problem).__name__}: {problem}") from None
