"""The parent's side of :class:`repobuild.worker.script_desk.ScriptDesk`: one request, one answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from repobuild.tensors import Batch
from repobuild.worker.asking import ANSWER, exchange
from repobuild.worker.host import Worker


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
    (found,) = exchange(child, "ask_script", folder, [request], str)
    if isinstance(found, str):
        return found
    try:
        return {name: found[str(i)] for i, name in enumerate(names)}
    except KeyError as problem:
        raise child.unusable(ANSWER, f"it has no entry {problem}") from None
