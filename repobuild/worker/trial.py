"""A first load of a graph in ONNX Runtime, in a child process of its own, which alone may crash."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from repobuild.artifact import Library
from repobuild.errors import ConversionFailed, EnvironmentLacking
from repobuild.worker.host import Worker

FOLDER = "trial"


def try_graph(graph: Path, given: str, folder: Path, libraries: Sequence[Library] = ()) -> None:
    """Load a graph as a server does.

    Args:
        graph: ONNX file; external data lies beside it.
        given: The model as the recipe has it, for messages.
        folder: Existing folder to work in.
        libraries: What it takes its custom operators from.

    Raises:
        ConversionFailed: ONNX Runtime refuses the graph, or crashes on it.
        EnvironmentLacking: The child process runs into a limit, or cannot be started.
    """
    home = folder / FOLDER
    home.mkdir(exist_ok=True)
    with closing(Worker(home, "loading the graph")) as worker:
        try:
            worker.call("task", name="load", model=str(graph), libraries=[str(one.path) for one in libraries])
        except EnvironmentLacking as problem:
            if problem.code != "worker-crashed":
                raise
            raise ConversionFailed(
                "runtime-crashes",
                f"ONNX Runtime crashes on the graph of {given}",
                problem.evidence,
                "a server with this ONNX Runtime would crash as well; export another form of the model",
            ) from problem
