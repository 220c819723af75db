"""Which models and versions there are, and in which state (Triton contract, lifecycle)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from repobuild_serve.core.model import ModelVersion
from repobuild_serve.core.readiness import DOWN, READY, Check, Readiness
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.lifecycle.states import UNLOADED, Record, State, TrackedModel

_STEP = 0.01
Watcher = Callable[[Sequence[ModelVersion]], None]
"""Told of versions that serve no longer, in the turn of the loop in which that happens. The sequence is empty
if versions were only added: what a path without a version means may have changed then, too."""


class Commands(Protocol):
    """What carries out loads and unloads, and knows the repositories."""

    async def load(self, name: str, parameters: Mapping[str, str | bytes]) -> None:
        """See ``Directory.load``."""
        ...

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        """See ``Directory.unload``."""
        ...

    async def names(self) -> tuple[list[str], list[str]]:
        """The folders in the repositories by name: those that are models, those that are there twice."""
        ...


class Models:
    """All models of the server. Every method is called on the loop's thread."""

    def __init__(self) -> None:
        self.tracked: dict[str, TrackedModel] = {}
        self.commands: Commands | None = None
        self._watchers: list[Watcher] = []
        self._going: dict[ModelVersion, asyncio.Task[None]] = {}

    def find(self, name: str, version: str) -> ModelVersion:
        """The READY version that a path names; the highest one for an empty ``version``.

        Raises:
            RequestError: E1 to E5 of the Triton contract.
        """
        model = self.tracked.get(name)
        if model is None:
            raise _unknown(f"'{name}' is not found")
        if not version:
            ready = model.ready()
            if not ready:
                raise _unknown(f"'{name}' has no available versions")
            return ready[max(ready)]
        number = parse_version(version)
        record = model.records.get(number)
        if record is None:
            raise _unknown(f"'{name}' version {number} is not found")
        if record.state is not State.READY or record.version is None:
            raise _unknown(f"'{name}' version {number} is not at ready state", Code.UNAVAILABLE)
        return record.version

    def versions(self, name: str) -> list[ModelVersion]:
        """The READY versions of a model, ascending; none if there is no such model."""
        model = self.tracked.get(name)
        return list(model.ready().values()) if model is not None else []

    def ready_versions(self) -> Iterator[ModelVersion]:
        """Every READY version, by model name and number."""
        for _, model in sorted(self.tracked.items()):
            yield from model.ready().values()

    def readiness(self, *, instances: bool = True) -> Readiness:
        """Whether the server is ready in the strict sense.

        Args:
            instances: Whether READY versions whose instances are not ready make the server not ready, too (V2
                of the Triton contract).
        """
        checks: list[Check] = []
        for model in self.tracked.values():
            if not model.records:
                return DOWN
            for record in model.records.values():
                if record.state is not State.READY:
                    if record.reason != UNLOADED:
                        return DOWN
                elif instances:
                    readiness = record.version.readiness() if record.version is not None else DOWN
                    if not readiness.up:
                        return DOWN
                    checks += readiness.checks
        return Readiness(True, tuple(checks)) if checks else READY

    async def index(self, *, ready_only: bool) -> list[dict[str, str]]:
        """The repository index: what is in the repositories, with the states of what is tracked of it."""
        assert self.commands is not None
        names, twice = await self.commands.names()
        items: list[dict[str, str]] = []
        for name in names:
            if name in twice:
                reason = "model appears in two or more repositories"
                items.append({"name": name, "state": "UNAVAILABLE", "reason": reason})
                continue
            model = self.tracked.get(name)
            if model is None:
                if not ready_only:
                    items.append({"name": name})
                continue
            for number, record in sorted(model.records.items()):
                # Of a model without versions there is nothing to say, as with Triton.
                if number < 0 or (ready_only and record.state is not State.READY):
                    continue
                item = {"name": name, "version": str(number), "state": record.state.value}
                if record.reason:
                    item["reason"] = record.reason
                items.append(item)
        return items

    async def load(self, name: str, parameters: Mapping[str, str | bytes]) -> None:
        """See ``Directory.load``."""
        assert self.commands is not None
        await self.commands.load(name, parameters)

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        """See ``Directory.unload``."""
        assert self.commands is not None
        await self.commands.unload(name, dependents=dependents)

    # For the life cycle

    def watch(self, watcher: Watcher) -> None:
        """Tell ``watcher`` whenever other versions serve than before."""
        self._watchers.append(watcher)

    def track(self, name: str) -> TrackedModel:
        """The entry of a model, made if there is none."""
        return self.tracked.setdefault(name, TrackedModel(name))

    def swap(self, name: str, fresh: Mapping[int, ModelVersion], keep: Iterable[int] = ()) -> None:
        """Let new versions of a model serve, and those they replace go, in one step.

        Args:
            name: Model name.
            fresh: The new versions by number, started.
            keep: Numbers of READY versions that serve on.
        """
        model = self.track(name)
        stay = {*fresh, *keep}
        old = model.ready()
        for number, version in fresh.items():
            model.records[number] = Record(State.READY, version=version)
        for number, version in old.items():
            if number not in stay:
                self._retire(model.records[number], version)
            elif number in fresh:
                self.end(version)
        self._tell([version for number, version in old.items() if number in fresh or number not in stay])

    def retire(self, name: str) -> None:
        """Let every READY version of a model go; returns before they are gone."""
        model = self.tracked.get(name)
        old = model.ready() if model is not None else {}
        if model is not None and old:
            for number, version in old.items():
                self._retire(model.records[number], version)
            self._tell(list(old.values()))

    def forget_failures(self, name: str, keep: Container[int] = ()) -> None:
        """Drop what is said about versions that failed and are on disk no longer.

        Args:
            name: Model name.
            keep: Versions that are on disk.
        """
        model = self.tracked.get(name)
        if model is None:
            return
        for number, record in tuple(model.records.items()):
            if record.failed and number not in keep:
                del model.records[number]
        if not model.records:
            del self.tracked[name]

    def end(self, version: ModelVersion, record: Record | None = None) -> None:
        """Close a version once nothing runs on it.

        Args:
            version: The version, which no request finds any more.
            record: What is to say that it is gone.
        """
        task = asyncio.get_running_loop().create_task(self._end(version, record))
        self._going[version] = task

    def busy(self) -> bool:
        """Whether any request waits or runs."""
        return any(version.busy() for version in (*self.ready_versions(), *self._going))

    async def gone(self) -> None:
        """Wait until every version that is going has gone."""
        while self._going:
            await asyncio.wait(tuple(self._going.values()))

    def close(self) -> None:
        """Stop every instance, whatever it does. Does not wait."""
        for version in (*self.ready_versions(), *self._going):
            version.close()

    def _retire(self, record: Record, version: ModelVersion) -> None:
        record.state, record.version = State.UNLOADING, None
        self.end(version, record)

    async def _end(self, version: ModelVersion, record: Record | None) -> None:
        try:
            await _until(lambda: not version.busy())
            version.close()
            await _until(version.gone)
        finally:
            del self._going[version]
        version.released()
        if record is not None:
            record.state, record.reason = State.UNAVAILABLE, UNLOADED

    def _tell(self, gone: Sequence[ModelVersion]) -> None:
        for watcher in self._watchers:
            watcher(gone)


async def _until(condition: Callable[[], bool]) -> None:
    # Looking again and again: a model that goes is rare, and what serves ones that stay pays nothing for it.
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(_STEP)


def _unknown(what: str, code: Code = Code.NOT_FOUND) -> RequestError:
    return RequestError(f"Request for unknown model: {what}", code, plain=True)


def parse_version(text: str) -> int:
    """A version number from a path.

    Raises:
        RequestError: It is too large (E5 of the Triton contract).
    """
    number = int(text) if len(text) <= 19 else 1 << 63
    if number >= 1 << 63:
        raise RequestError(
            f"failed to get model version from specified version string '{text}' (details: stol), version "
            "should be "
            "an integral value > 0",
            plain=True,
        )
    return number
