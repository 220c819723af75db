"""What an instance of a model may ask of the server that runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from repobuild_serve.core.custom_metrics import CustomMetrics
from repobuild_serve.profile import Profile

if TYPE_CHECKING:
    from repobuild_serve.core.internal import InternalCalls
    from repobuild_serve.core.model import ModelVersion


class Directory(Protocol):
    """The models of the server. Every method is called on the loop's thread."""

    def find(self, name: str, version: str) -> ModelVersion:
        """The READY version called so; the highest one for an empty ``version``.

        Raises:
            RequestError: There is none.
        """
        ...

    async def load(self, name: str, parameters: Mapping[str, str | bytes]) -> None:
        """Load or reload a model, as the load route does.

        Args:
            name: Model name.
            parameters: ``config`` with a config as JSON, and ``file:PATH`` with contents of files.

        Raises:
            RequestError: The model cannot be loaded, or may not be in this control mode.
        """
        ...

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        """Unload a model, as the unload route does.

        Raises:
            RequestError: Models may not be unloaded in this control mode.
        """
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """What instances get.

    Attributes:
        loop: The server's event loop.
        calls: Makes requests to other models.
        models: Finds, loads and unloads them.
        profile: Which release's answers are given where releases differ.
        backend_options: Value by key, by backend name: the ``--backend-config`` options; the empty name holds
            those for every backend.
        custom_metrics: Metrics that models define themselves.
        endings: Instances that are being ended, which the server waits for before it ends itself.
    """

    loop: asyncio.AbstractEventLoop
    calls: InternalCalls
    models: Directory
    profile: Profile
    backend_options: Mapping[str, Mapping[str, str]]
    custom_metrics: CustomMetrics = field(default_factory=CustomMetrics)
    endings: set[asyncio.Task[Any]] = field(default_factory=set)
