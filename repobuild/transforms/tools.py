"""The libraries that transforms use: their versions, and what they say."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from repobuild.artifact import Tool


def tool(name: str) -> Tool:
    """An installed library with its version; ONNX Runtime under either of its packages."""
    packages = ("onnxruntime", "onnxruntime-gpu") if name == "onnxruntime" else (name,)
    for package in packages:
        try:
            return Tool(package, version(package))
        except PackageNotFoundError:
            continue
    return Tool(name, "unknown")


@contextlib.contextmanager
def overheard() -> Iterator[list[str]]:
    """Collect what a library logs, warns and prints, which would not be seen in a report."""
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    listener = Listener(logging.WARNING)
    root = logging.getLogger()
    root.addHandler(listener)
    printed = io.StringIO()
    try:
        with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(printed):
            warnings.simplefilter("always")
            yield said
        said.extend(f"{w.category.__name__}: {w.message}" for w in warned)
        said.extend(line for line in printed.getvalue().splitlines() if line.strip())
    finally:
        root.removeHandler(listener)
