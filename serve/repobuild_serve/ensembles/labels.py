"""Class labels that an ensemble has from its members."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from repobuild_serve.config.settings import ModelSettings
from repobuild_serve.core.services import Services
from repobuild_serve.errors import RequestError


def with_inherited(
    settings: ModelSettings, labels: Sequence[Sequence[str]], services: Services
) -> list[Sequence[str]]:
    """The labels of each output of an ensemble: its own, or those of the member that makes the output.

    Args:
        settings: The ensemble, whose members are loaded.
        labels: Its own labels by output; empty where it has none.
        services: Finds the members. Called on a loading thread, so the loop is asked.
    """

    async def find() -> list[Sequence[str]]:
        return [
            own or _of_member(settings, output.name, services)
            for output, own in zip(settings.outputs, labels, strict=True)
        ]

    return asyncio.run_coroutine_threadsafe(find(), services.loop).result()


def _of_member(settings: ModelSettings, tensor: str, services: Services) -> Sequence[str]:
    for step in settings.steps:
        for output, target in step.outputs.items():
            if target == tensor:
                try:
                    member = services.models.find(step.model, str(step.version) if step.version >= 0 else "")
                except RequestError:
                    return ()
                index = member.plan.outputs_by_name.get(output)
                return () if index is None else member.labels[index]
    return ()
