"""From a backend to the workers that the scheduler knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from repobuild_serve.backends.interface import Backend
from repobuild_serve.config.settings import ModelSettings
from repobuild_serve.core.execution import Executor
from repobuild_serve.core.services import Services
from repobuild_serve.errors import LoadError, StartError
from repobuild_serve.scheduling.workers import ThreadWorker, Worker


@dataclass(frozen=True, slots=True)
class Opening:
    """An instance that is to be brought up.

    Attributes:
        settings: The model.
        version: Version number.
        path: The model file, which exists.
        name: Instance name.
        services: What the instance may ask of the server.
    """

    settings: ModelSettings
    version: int
    path: Path
    name: str
    services: Services


class ModelBackend(Protocol):
    """How models of one kind are completed and brought up. Called on loading threads.

    It may have the attributes ``text_only`` and ``without_effect`` of a ``Backend``.
    """

    platform: str
    """See ``Backend.platform``."""
    default_filename: str
    """See ``Backend.default_filename``."""
    default_count: int
    """See ``Backend.default_count``."""

    def configure(self, own: Mapping[str, str], shared: Mapping[str, str]) -> None:
        """Take the settings of ``--backend-config``; called at most once, before any model loads.

        Args:
            own: What is said to this backend.
            shared: What is said to every backend; a backend takes from it what it knows.

        Raises:
            StartError: ``own`` has an unknown key, or a value is of the wrong kind.
        """
        ...

    def uses_gpus(self) -> bool:
        """Whether instances can be put on a GPU: what is installed can use one."""
        ...

    def complete(self, config: Any, path: Path) -> None:
        """See ``Backend.complete``."""
        ...

    def worker(self, opening: Opening) -> Worker:
        """Bring up one instance, ready for ``Worker.run_here``.

        Raises:
            LoadError: The model cannot be loaded or does not fit its config.
            StartError: A package that the backend needs is not installed.
        """
        ...


def fields_without_effect(backend: ModelBackend | None) -> Sequence[str]:
    """Fields of a config that a backend has no use for; one that does not say is taken to use them all."""
    found: Sequence[str] = getattr(backend, "without_effect", ())
    return found


def takes_text_only(backend: ModelBackend | None) -> bool:
    """Whether a backend takes strings as text only; one that does not say takes any bytes."""
    return bool(getattr(backend, "text_only", False))


class Threaded:
    """A backend whose instances are called on threads of this process."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.platform = backend.platform
        self.default_filename = backend.default_filename
        self.default_count = backend.default_count
        self.text_only = bool(getattr(backend, "text_only", False))
        self.without_effect = tuple(getattr(backend, "without_effect", ()))

    def configure(self, own: Mapping[str, str], shared: Mapping[str, str]) -> None:
        """See ``ModelBackend.configure``; a backend without ``configure`` has no settings."""
        configure = getattr(self._backend, "configure", None)
        if configure is not None:
            configure(own, shared)
        elif own:
            raise StartError(
                "backend-config-invalid",
                f"the backend has no setting '{min(own)}', nor any other",
                hint="leave its --backend-config out",
                exit_code=2,
            )

    def uses_gpus(self) -> bool:
        """See ``ModelBackend.uses_gpus``; a backend that does not say runs on the processor."""
        uses_gpus = getattr(self._backend, "uses_gpus", None)
        return uses_gpus is not None and bool(uses_gpus())

    def complete(self, config: Any, path: Path) -> None:
        """See ``ModelBackend.complete``."""
        self._backend.complete(config, path)

    def worker(self, opening: Opening) -> Worker:
        """See ``ModelBackend.worker``."""
        if opening.settings.decoupled:
            raise LoadError(
                f"model '{opening.settings.name}' has a decoupled transaction policy, but backend "
                f"'{opening.settings.backend}' gives exactly one response to each request"
            )
        instance = self._backend.open(opening.settings, opening.path, opening.name)
        return ThreadWorker(opening.name, instance, Executor(opening.settings))
