"""Poll mode: watching the repositories, and bringing what is served up to date with them."""

from __future__ import annotations

import asyncio
import logging

from repobuild_serve.errors import ConfigError, StartError
from repobuild_serve.lifecycle.control import Control
from repobuild_serve.lifecycle.directory import Models

_LOG = logging.getLogger(__name__)
_SETTLE_SECONDS = 1.0


class Poller:
    """Looks at the repositories again and again.

    A model folder is loaded only when it has stayed as it is for a moment, since whoever writes it may not be
    done. That moment is a second, or half the time between two looks if that is shorter.

    Args:
        control: Carries out what is to be done.
        models: Says what is served.
        seconds: Time between two looks.
    """

    def __init__(self, control: Control, models: Models, seconds: float) -> None:
        self._control = control
        self._models = models
        self._seconds = seconds
        self._settle_seconds = min(_SETTLE_SECONDS, seconds / 2)
        self._told: dict[str, str] = {}

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await asyncio.sleep(self._seconds)
            try:
                await self.poll()
            except Exception:  # noqa: BLE001 - a bug in one look at the repository must not end the watch
                _LOG.exception("the model repository could not be polled")

    async def poll(self) -> None:
        """Look once."""
        try:
            names, twice = await self._control.names()
        except OSError as exc:
            # A file system that is away for a moment must not end all service.
            _LOG.error("failed to poll model repository: %s; everything stays as it is", exc)
            return
        for name in twice:
            self._tell_once(name, "not unique across all model repositories")
        there = [name for name in names if name not in twice]
        for name in set(self._models.tracked).difference(there):
            await self._control.remove(name)
        changes = await asyncio.gather(*(self._changed(name) for name in there))
        changed = [name for name, new in zip(there, changes, strict=True) if new]
        if not changed:
            return
        try:
            unreadable = await self._control.refresh(changed)
        except StartError as exc:
            _LOG.error("failed to poll model repository: %s", exc.render())
            return
        for name in changed:
            if name in unreadable:
                self._tell_once(name, unreadable[name])
            else:
                self._told.pop(name, None)

    async def _changed(self, name: str) -> bool:
        """Whether a model folder is not as it was loaded, and nobody is just writing it."""
        try:
            before = await self._control.look(name)
            known = self._control.known.get(name)
            if known is not None and known.print == before:
                return False
            await asyncio.sleep(self._settle_seconds)
            if await self._control.look(name) == before:
                return True
            _LOG.info("model folder '%s' is being written: it is left to the next poll", name)
        except (ConfigError, OSError) as exc:
            self._tell_once(name, str(exc))
        return False

    def _tell_once(self, name: str, text: str) -> None:
        """Log why a model cannot be read, unless the last look found the same."""
        if self._told.get(name) != text:
            self._told[name] = text
            _LOG.error("Poll failed for model directory '%s': %s", name, text)
