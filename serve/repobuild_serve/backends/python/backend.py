"""The ``python`` backend."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from repobuild_serve.backends.model_backend import Opening
from repobuild_serve.backends.python.auto_complete import complete
from repobuild_serve.backends.python.coding import Coding
from repobuild_serve.backends.python.launch import launch_of
from repobuild_serve.backends.python.server_calls import ServerCalls
from repobuild_serve.backends.python.worker import PythonWorker
from repobuild_serve.errors import Code, LoadError
from repobuild_serve.scheduling.workers import Worker


class PythonBackend:
    """Models that are written in Python: a process for each instance."""

    platform = ""
    default_filename = "model.py"
    default_count = 1

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
        asyncio.run_coroutine_threadsafe(worker.open(), services.loop).result()
        return worker
