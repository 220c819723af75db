"""Carrying out loads, reloads and unloads (Triton contract, load, reload, swap)."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from repobuild_serve.core.model import ModelVersion, Resizable
from repobuild_serve.core.services import Services
from repobuild_serve.core.ticket import Sink
from repobuild_serve.errors import Code, ConfigError, LoadError, RequestError, StartError
from repobuild_serve.lifecycle.directory import Models
from repobuild_serve.lifecycle.fingerprint import Fingerprint, fingerprint
from repobuild_serve.lifecycle.instances import Change, same_but_for_instances
from repobuild_serve.lifecycle.loading import Reading, Source, load_version, prepare_change, read_source
from repobuild_serve.lifecycle.natives import import_natives
from repobuild_serve.lifecycle.overrides import Overrides, Scratch, check_name, overrides_from
from repobuild_serve.lifecycle.pool import Pool
from repobuild_serve.lifecycle.reservations import Reservations
from repobuild_serve.lifecycle.states import Record, State
from repobuild_serve.repository import find_model, model_names

_LOG = logging.getLogger(__name__)
_NO_VERSION = -1
_READERS = 4
_T = TypeVar("_T")


class Mode(enum.Enum):
    """When models come and go; the value is the one of ``--model-control-mode``."""

    NONE = "none"
    POLL = "poll"
    EXPLICIT = "explicit"


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """What the command line says about the life cycle.

    Attributes:
        repositories: Folders of models.
        mode: When models come and go.
        auto_complete: Whether missing parts of a config are taken from the model.
        config_name: Value of ``--model-config-name``; empty for none.
        threads: Versions loaded at a time.
        retries: How often a load that failed is tried again at once.
        startup: Models to load at the start in explicit mode; ``*`` alone stands for all.
        settle_seconds: How long a changed model folder must have stayed as it is in poll mode.
    """

    repositories: tuple[Path, ...]
    mode: Mode = Mode.NONE
    auto_complete: bool = True
    config_name: str = ""
    threads: int = 4
    retries: int = 0
    startup: tuple[str, ...] = ()
    settle_seconds: float = 1.0


class Control:
    """Loads and unloads models. Every method is called on the loop's thread.

    Args:
        options: What the command line says.
        models: Where the states are kept.
        services: What instances may ask for.
        sink: Where answers of models go.
    """

    def __init__(self, options: ControlOptions, models: Models, services: Services, sink: Sink) -> None:
        self._options = options
        self._models = models
        self._services = services
        self._sink = sink
        self._reading = Reading(options.repositories, options.auto_complete, options.config_name)
        self._readers = Pool(services.loop, _READERS, "read")
        self._loaders = Pool(services.loop, options.threads, "load")
        self._reservations = Reservations()
        self._known: dict[str, Source] = {}
        self._scratches: set[Scratch] = set()
        self._operations: set[asyncio.Future[None]] = set()
        self._starting = False
        self._ending = False
        self._told: dict[str, str] = {}
        models.commands = self

    # Commands

    async def load(self, name: str, parameters: Mapping[str, str | bytes]) -> None:
        """See ``Directory.load``."""
        overrides = overrides_from(parameters)
        self._check_allowed()
        check_name(name)
        with self._operation():
            try:
                failure = await self._load(name, overrides)
            except ConfigError as exc:
                _LOG.error("Poll failed for model directory '%s': %s", name, exc.text)
                text = f"failed to load '{name}', failed to poll from model repository"
                raise RequestError(text, Code.INTERNAL) from exc
            except StartError as exc:
                raise RequestError(exc.render(), Code.INTERNAL) from exc
        if failure:
            raise RequestError(f"load failed for model '{name}': {failure}\n")

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        """See ``Directory.unload``."""
        self._check_allowed()
        with self._operation():
            await self._unload(name)

    async def names(self) -> tuple[list[str], list[str]]:
        """See ``Commands.names``."""
        return await self._readers.run(lambda: _names(self._options.repositories))

    # The start and the end

    async def load_startup(self) -> list[str]:
        """Load what is to be there from the start.

        Returns:
            One line per model that is not fully READY.

        Raises:
            StartError: A package that the models need is missing.
            OSError: A repository cannot be read.
        """
        await self._readers.run(import_natives)
        options = self._options
        problems: list[str] = []
        names: Iterable[str] = options.startup
        if options.mode is not Mode.EXPLICIT or options.startup == ("*",):
            names, twice = await self.names()
            problems += [f"{name}: not unique across all model repositories" for name in twice]
            names = [name for name in names if name not in twice]
        self._starting = True
        try:
            with self._operation():
                found = await _all(self._load_at_start(name) for name in names)
        finally:
            self._starting = False
        return problems + [line for lines in found for line in lines]

    async def poll(self) -> None:
        """Look at the repositories once, and bring everything up to date with them (poll mode)."""
        try:
            names, twice = await self.names()
        except OSError as exc:
            # A file system that is away for a moment must not end all service.
            _LOG.error("failed to poll model repository: %s; everything stays as it is", exc)
            return
        for name in twice:
            self._told_once(name, "not unique across all model repositories")
        there = set(names) - set(twice)
        with self._operation():
            for name in [name for name in self._models.tracked if name not in there]:
                await self._unload(name)
                self._models.forget_failures(name)
            await _all(self._poll_one(name) for name in sorted(there))

    async def end(self) -> None:
        """Let loads that have begun finish, then unload everything and wait until it is gone."""
        self._ending = True
        while self._operations:
            await asyncio.wait(self._operations)
        await self._loaders.idle()
        for name in tuple(self._models.tracked):
            self._models.retire(name)
        await self._models.gone()
        await self._readers.idle()
        self.close()

    def close(self) -> None:
        """Release what outlives the process otherwise. Does not wait."""
        self._readers.close()
        self._loaders.close()
        for scratch in self._scratches:
            scratch.remove()
        self._scratches.clear()

    # Operations

    @contextlib.contextmanager
    def _operation(self) -> Iterator[None]:
        """Something that must come to its end before the server may unload everything."""
        if self._ending:
            raise RequestError("Server not ready", Code.UNAVAILABLE)
        done: asyncio.Future[None] = self._services.loop.create_future()
        self._operations.add(done)
        try:
            yield
        finally:
            self._operations.discard(done)
            done.set_result(None)

    def _check_allowed(self) -> None:
        if self._options.mode is not Mode.EXPLICIT:
            raise RequestError(
                "explicit model load / unload is not allowed if polling is enabled", Code.UNAVAILABLE
            )

    async def _load_at_start(self, name: str) -> list[str]:
        try:
            await self._load(name, Overrides())
        except ConfigError as exc:
            self._told_once(name, exc.text)
            return [f"{name}: {exc.text}"]
        model = self._models.tracked.get(name)
        return [
            f"{name}, version {number}: {record.reason}" if number >= 0 else f"{name}: {record.reason}"
            for number, record in sorted(model.records.items() if model is not None else ())
            if record.failed
        ]

    async def _poll_one(self, name: str) -> None:
        """Bring one model up to date, unless somebody is just writing it."""
        try:
            before = await self._look(name)
            known = self._known.get(name)
            if known is not None and known.print == before:
                return
            await asyncio.sleep(self._options.settle_seconds)
            if await self._look(name) != before:
                _LOG.info("model folder '%s' is being written: it is left to the next poll", name)
                return
            await self._load(name, Overrides())
            self._told.pop(name, None)
        except ConfigError as exc:
            self._told_once(name, exc.text)
        except (OSError, StartError) as exc:
            self._told_once(name, str(exc))

    async def _look(self, name: str) -> Fingerprint:
        return await self._readers.run(lambda: fingerprint(find_model(self._options.repositories, name)))

    def _told_once(self, name: str, text: str) -> None:
        """Log why a model cannot be read, unless the last look found the same."""
        if self._told.get(name) != text:
            self._told[name] = text
            _LOG.error("Poll failed for model directory '%s': %s", name, text)

    async def _load(self, name: str, overrides: Overrides) -> str:
        """Load a model, or bring it up to date.

        Returns:
            Why it failed; empty if it did not.

        Raises:
            ConfigError: The model cannot be read; nothing has changed.
            StartError: A package is missing.
        """
        async with self._reservations.hold({name}):
            known = self._known.get(name)
            source = await self._readers.run(
                lambda: read_source(name, overrides, self._reading, known), _drop
            )
            if source is None:
                return ""
            if source.scratch is not None:
                self._scratches.add(source.scratch)
            return await self._bring_up(name, source)

    async def _unload(self, name: str) -> None:
        async with self._reservations.hold({name}):
            self._known.pop(name, None)
            self._models.retire(name)

    async def _bring_up(self, name: str, source: Source) -> str:
        """Make the versions of a source serve in place of those that do; why that failed, if it did."""
        model = self._models.track(name)
        folder = source.folder
        if folder.problem is not None and (not folder.versions or folder.backend is None):
            model.records[_NO_VERSION] = _failed(folder.problem)
            _LOG.error("failed to load '%s': %s", name, folder.problem.text)
            self._share(source, ())
            return folder.problem.text
        model.records.pop(_NO_VERSION, None)
        ready = model.ready()
        updates = [
            n for n in folder.versions if n in ready and self._only_instances(name, source, n, ready[n])
        ]
        fresh = [number for number in folder.versions if number not in updates]
        for number in fresh:
            if number not in ready:
                model.records[number] = Record(State.LOADING)
        results = await _all(
            [
                *(self._load_version(source, number) for number in fresh),
                *(self._prepare(ready[number], source) for number in updates),
            ]
        )
        loaded = dict(zip(fresh, results[: len(fresh)], strict=True))
        changes = dict(zip(updates, results[len(fresh) :], strict=True))
        versions = {n: result for n, result in loaded.items() if isinstance(result, ModelVersion)}
        errors = {n: result for n, result in (loaded | changes).items() if isinstance(result, LoadError)}
        errors |= self._start(versions)
        for number, change in changes.items():
            if isinstance(change, Change):
                _apply(ready[number], change)
        self._share(source, versions.values())
        if errors:
            self._give_up(name, versions, errors)
            return "".join(_piece(number, errors[number], number in updates) for number in sorted(errors))
        self._known[name] = source
        self._models.swap(name, versions, updates)
        if source.print is not None:
            self._models.forget_failures(name, keep=source.print.versions)
        return ""

    def _only_instances(self, name: str, source: Source, number: int, version: ModelVersion) -> bool:
        """Whether a READY version is as the source has it, but perhaps for its instances."""
        known = self._known.get(name)
        return (
            known is not None
            and known.print is not None
            and source.print is not None
            and known.print.of_version(number) == source.print.of_version(number)
            and same_but_for_instances(known.folder.config, source.folder.config)
            and isinstance(version.runner, Resizable)
        )

    async def _load_version(self, source: Source, number: int) -> ModelVersion | LoadError:
        try:
            return await self._loaders.run(
                lambda: load_version(source.folder, number, self._services, self._options.retries),
                ModelVersion.close,
            )
        except LoadError as exc:
            return exc
        except StartError as exc:
            if self._starting:
                raise
            return LoadError(exc.render(), Code.INTERNAL)

    async def _prepare(self, version: ModelVersion, source: Source) -> Change | LoadError:
        assert isinstance(version.runner, Resizable)
        workers = version.runner.workers()
        try:
            return await self._loaders.run(
                lambda: prepare_change(version, workers, source.folder, self._services)
            )
        except (LoadError, StartError) as exc:
            return exc if isinstance(exc, LoadError) else LoadError(exc.render(), Code.INTERNAL)

    def _start(self, versions: Mapping[int, ModelVersion]) -> dict[int, LoadError]:
        errors: dict[int, LoadError] = {}
        for number, version in versions.items():
            try:
                version.start(self._services.loop, self._sink)
            except Exception as exc:  # noqa: BLE001 - no thread or descriptor is left: the load fails, not the server
                _LOG.exception("an instance could not be started")
                errors[number] = LoadError(f"{type(exc).__name__}: {exc}", Code.INTERNAL)
        return errors

    def _give_up(
        self, name: str, versions: Mapping[int, ModelVersion], errors: Mapping[int, LoadError]
    ) -> None:
        """Record a load that failed; all selected versions load together, so none of the new ones is used."""
        records = self._models.track(name).records
        for number, error in errors.items():
            if records[number].state is State.LOADING:
                records[number] = _failed(error)
        for number, version in versions.items():
            record = records[number] if records[number].state is State.LOADING else None
            if record is not None:
                record.state = State.UNLOADING
            self._models.end(version, record)

    def _share(self, source: Source, versions: Collection[ModelVersion]) -> None:
        """Remove the files that came with a request once the last version loaded from them is gone."""
        if source.scratch is None:
            return
        left = len(versions)

        def gone() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                self._discard(source)

        for version in versions:
            version.when_gone(gone)
        if not versions:
            self._discard(source)

    def _discard(self, source: Source) -> None:
        if source.scratch is not None:
            self._scratches.discard(source.scratch)
            self._readers.run(source.scratch.remove)


async def _all(calls: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """The results of calls that run at the same time, once all are done; the first error if there is one."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    if not tasks:
        return []
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
    errors = [error for task in tasks if (error := task.exception()) is not None]
    if errors:
        raise errors[0]
    return [task.result() for task in tasks]


def _drop(source: Source | None) -> None:
    if source is not None:
        source.discard()


def _apply(version: ModelVersion, change: Change) -> None:
    """Give a READY version the instances of its new config."""
    assert isinstance(version.runner, Resizable)
    version.runner.resize(change.added, change.removed)
    version.statistics.merge(change.statistics)
    version.settings = change.settings
    version.signatures = change.signatures


def _failed(error: LoadError) -> Record:
    return Record(State.UNAVAILABLE, f"{error.code.value}: {error.text}")


def _piece(number: int, error: LoadError, ready: bool) -> str:
    state = State.READY if ready else State.UNAVAILABLE
    return f"version {number} is at {state.value} state: {error.code.value}: {error.text};"


def _names(repositories: Sequence[Path]) -> tuple[list[str], list[str]]:
    seen: set[str] = set()
    twice: set[str] = set()
    for repository in repositories:
        names = set(model_names(repository))
        twice |= seen & names
        seen |= names
    return sorted(seen), sorted(twice)
