"""The ``python`` backend."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repobuild_serve.backends.model_backend import Opening
from repobuild_serve.backends.python.auto_complete import complete
from repobuild_serve.backends.python.coding import Coding
from repobuild_serve.backends.python.launch import START_SECONDS, launch_of, start_seconds
from repobuild_serve.backends.python.server_calls import ServerCalls
from repobuild_serve.backends.python.worker import PythonWorker
from repobuild_serve.errors import Code, LoadError, StartError
from repobuild_serve.scheduling.workers import Worker

_LOG = logging.getLogger(__name__)
_SHARED_MEMORY = frozenset({"shm-default-byte-size", "shm-growth-byte-size", "shm-region-prefix-name"})


class PythonBackend:
    """Models that are written in Python: a process for each instance."""

    platform = ""
    default_filename = "model.py"
    default_count = 1
    without_effect = ("optimization.graph.level", "optimization.execution_accelerators")

    def configure(self, own: Mapping[str, str], shared: Mapping[str, str]) -> None:
        """See ``ModelBackend.configure``.

        Args:
            own: ``stub-timeout-seconds``. Triton's sizes and names of shared memory are taken without effect,
                since tensors reach the process over a socket.
            shared: Nothing of it concerns this backend.
        """
        unknown = sorted(own.keys() - {START_SECONDS, *_SHARED_MEMORY})
        if unknown:
            raise _misconfigured(f"the python backend has no setting '{unknown[0]}'")
        for key in sorted(own.keys() & _SHARED_MEMORY):
            _LOG.warning("--backend-config=python,%s has no effect: no shared memory is used", key)
        try:
            start_seconds(own)
        except LoadError as exc:
            raise _misconfigured(exc.text) from exc

    def uses_gpus(self) -> bool:
        """See ``ModelBackend.uses_gpus``: a model is told which one is its own."""
        return True

    def complete(self, config: Any, path: Path) -> None:
        """See ``ModelBackend.complete``: runs the model's ``auto_complete_config``."""
        if path.is_file():
            complete(config, path)

    def worker(self, opening: Opening) -> Worker:
        """See ``ModelBackend.worker``."""
        if not opening.path.is_file():
            raise LoadError(f"Python model file not found in '{opening.path}'", Code.INTERNAL)
        coding = Coding(opening.settings)
        services = opening.services
        worker = PythonWorker(
            opening.name, coding, launch_of(opening, coding), services, ServerCalls(services, opening.name)
        )
        try:
            asyncio.run_coroutine_threadsafe(worker.open(), services.loop).result()
        except concurrent.futures.CancelledError as exc:
            raise LoadError("the server is stopping", Code.UNAVAILABLE) from exc
        return worker


def _misconfigured(text: str) -> StartError:
    known = ", ".join(sorted({START_SECONDS, *_SHARED_MEMORY}))
    return StartError(
        "backend-config-invalid",
        text,
        hint=f"the settings of --backend-config=python are {known}",
        exit_code=2,
    )
