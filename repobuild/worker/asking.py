"""Requests to a child process and its answers, by way of files: the parent's side."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

from repobuild.tensors import Batch
from repobuild.worker.arrays import writing
from repobuild.worker.host import Worker
from repobuild.worker.many import load_many, save_many

T = TypeVar("T")
QUESTION = "question.npz"
ANSWER = "answer.npz"
MALFORMED = (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, BadZipFile, zlib.error)
"""What reading a damaged file raises."""


def exchange(
    child: Worker, operation: str, folder: Path, requests: Sequence[Batch], fault: Callable[[Any], T]
) -> list[Batch | T]:
    """Ask what a child process has open.

    Args:
        child: The process.
        operation: What it calls the question; the answer has an ``errors`` entry for each request.
        folder: Existing private folder for what goes to it.
        requests: One array an input.
        fault: Makes something of an entry of ``errors``.

    Returns:
        For each request one array an output, or what ``fault`` made of the error.

    Raises:
        EnvironmentLacking: The child died, or handed back something else.
    """
    question = folder / QUESTION
    with writing("the requests"):
        save_many(question, requests)
    reply = child.call(operation, requests=str(question), to=str(child.place / ANSWER))
    file = child.take(ANSWER, folder / ANSWER)
    try:
        pairs = zip(load_many(file), reply["errors"], strict=True)
        return [batch if batch is not None else fault(error) for batch, error in pairs]
    except MALFORMED as problem:
        raise child.unusable(ANSWER, f"{type(problem).__name__}: {problem}") from None
