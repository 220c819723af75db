"""Answers the parent's requests to a graph whose operators come from libraries of a user's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repobuild.errors import ConversionFailed
from repobuild.worker.arrays import writing
from repobuild.worker.many import load_many, save_many
from repobuild.worker.onnx_session import open_session, output_shapes, run_session


class GraphDesk:
    """Holds the session between questions."""

    def __init__(self) -> None:
        self._session: Any = None

    def open_graph(self, path: str, libraries: list[str]) -> dict[str, Any]:
        """Load a graph with its libraries; see :func:`repobuild.worker.onnx_session.open_session`."""
        self._session = open_session(Path(path), libraries)
        return {"shapes": output_shapes(self._session)}

    def ask_graph(self, requests: str, to: str) -> dict[str, Any]:
        """The graph's answers to each of many requests, or why ONNX Runtime fails on it."""
        found: list[Any] = []
        errors: list[str | None] = []
        for request in load_many(Path(requests)):
            assert request is not None
            try:
                found.append(run_session(self._session, request))
                errors.append(None)
            except ConversionFailed as problem:
                found.append(None)
                errors.append(problem.evidence[0].text)
        with writing("the answers of the graph"):
            save_many(Path(to), found)
        return {"errors": errors}
