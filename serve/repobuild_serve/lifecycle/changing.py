"""Bringing one model from the versions that serve to those that are to serve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from repobuild_serve.core.model import ModelVersion, Resizable
from repobuild_serve.core.services import Services
from repobuild_serve.core.ticket import Sink
from repobuild_serve.errors import Code, LoadError, StartError
from repobuild_serve.lifecycle.directory import Models
from repobuild_serve.lifecycle.graph import members
from repobuild_serve.lifecycle.instances import Change, same_but_for_instances
from repobuild_serve.lifecycle.loading import Source, load_version, prepare_change
from repobuild_serve.lifecycle.overrides import Scratch
from repobuild_serve.lifecycle.pool import Pool
from repobuild_serve.lifecycle.states import Record, State

_LOG = logging.getLogger(__name__)
_NO_VERSION = -1
_T = TypeVar("_T")


class Changer:
    """Swaps versions of models. Every method is called on the loop's thread.

    Args:
        models: Where the states are kept.
        services: What instances may ask for.
        sink: Where answers of models go.
        pool: Where versions are loaded.
        retries: How often a load that failed is tried again at once.

    Attributes:
        known: What the READY versions of a model were loaded from; kept for an ensemble that lost a member.
        starting: Whether a package that is missing ends the server.
    """

    def __init__(self, models: Models, services: Services, sink: Sink, pool: Pool, retries: int) -> None:
        self.known: dict[str, Source] = {}
        self.starting = False
        self._models = models
        self._services = services
        self._sink = sink
        self._pool = pool
        self._retries = retries
        self._scratches: dict[Scratch, int] = {}
        self._unplaced: set[ModelVersion] = set()

    async def change(self, name: str, source: Source) -> str:
        """Make the versions of a source serve in place of those that do.

        Args:
            name: Model name.
            source: What to load; the caller sees to it that nobody else changes the model meanwhile.

        Returns:
            Why it failed; empty if it did not.

        Raises:
            StartError: A package is missing, while that is to end the server.
        """
        model = self._models.track(name)
        folder = source.folder
        if folder.problem is not None and not folder.versions:
            problem = self._as_load_error(name, folder.problem)
            if not model.records:
                model.records[_NO_VERSION] = _failed(problem)
            _LOG.error("failed to load '%s': %s", name, problem.text)
            self.share(source)
            return problem.text
        model.records.pop(_NO_VERSION, None)
        ready = model.ready()
        updates = [
            n for n in folder.versions if n in ready and self._only_instances(name, source, n, ready[n])
        ]
        fresh = [number for number in folder.versions if number not in updates]
        for number in fresh:
            if number not in ready:
                model.records[number] = Record(State.LOADING)
        results = await all_of(
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
        prepared = {number: change for number, change in changes.items() if isinstance(change, Change)}
        if errors:
            # All of it or nothing: what serves goes on as it was.
            for change in prepared.values():
                for worker in change.added:
                    worker.stop()
        else:
            for number, change in prepared.items():
                if (error := _apply(ready[number], change)) is not None:
                    errors[number] = error
        self.share(source, versions.values())
        self._unplaced.difference_update(versions.values())
        if errors:
            self._give_up(name, versions, errors)
            return "".join(_piece(number, errors[number], number in updates) for number in sorted(errors))
        self.known[name] = source
        self._models.swap(name, versions, updates)
        if source.print is not None:
            self._models.forget_failures(name, keep=source.print.versions)
        return ""

    def _only_instances(self, name: str, source: Source, number: int, version: ModelVersion) -> bool:
        """Whether a READY version is as the source has it, but perhaps for its instances."""
        known = self.known.get(name)
        return (
            known is not None
            and known.print is not None
            and source.print is not None
            and known.print.of_version(number) == source.print.of_version(number)
            and same_but_for_instances(known.folder.config, source.folder.config)
            and isinstance(version.runner, Resizable)
            and not members(source.folder.config)
        )

    async def _load_version(self, source: Source, number: int) -> ModelVersion | LoadError:
        try:
            version = await self._pool.run(
                lambda: load_version(source.folder, number, self._services, self._retries),
                ModelVersion.close,
            )
        except LoadError as exc:
            return exc
        except StartError as exc:
            error = self._as_load_error(source.folder.name, exc)
            _LOG.error("failed to load '%s' version %d: %s", source.folder.name, number, error.text)
            return error
        self._unplaced.add(version)
        return version

    async def _prepare(self, version: ModelVersion, source: Source) -> Change | LoadError:
        assert isinstance(version.runner, Resizable)
        workers = version.runner.workers()
        try:
            return await self._pool.run(
                lambda: prepare_change(version, workers, source.folder, self._services)
            )
        except (LoadError, StartError) as exc:
            return self._as_load_error(source.folder.name, exc)

    def _as_load_error(self, name: str, error: LoadError | StartError) -> LoadError:
        """Why a model cannot be loaded.

        Raises:
            StartError: A package is missing, while that is to end the server.
        """
        if isinstance(error, LoadError):
            return error
        if self.starting:
            raise error
        return error.for_model(name)

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

    def share(self, source: Source, versions: Collection[ModelVersion] = ()) -> None:
        """Keep files that came with a request as long as versions use them, or may be loaded from them."""
        scratch = source.scratch
        if scratch is None:
            return
        self._scratches[scratch] = self._scratches.get(scratch, 0) + len(versions)

        def gone() -> None:
            if scratch in self._scratches:
                self._scratches[scratch] -= 1
                self.sweep()

        for version in versions:
            version.when_gone(gone)
        self.sweep()

    def sweep(self) -> None:
        """Remove files that came with requests and that no model needs any more."""
        needed = {source.scratch for source in self.known.values()}
        for scratch, users in tuple(self._scratches.items()):
            if not users and scratch not in needed:
                del self._scratches[scratch]
                self._pool.run(scratch.remove)

    def close(self) -> None:
        """Release what the process must not leave behind. Does not wait."""
        for version in self._unplaced:
            version.close()
        for scratch in self._scratches:
            scratch.remove()
        self._unplaced.clear()
        self._scratches.clear()


async def all_of(calls: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
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


def _apply(version: ModelVersion, change: Change) -> LoadError | None:
    """Give a READY version the instances of its new config; why that was not possible, if it was not."""
    assert isinstance(version.runner, Resizable)
    try:
        version.runner.resize(change.added, change.removed)
    except Exception as exc:  # noqa: BLE001 - no thread or descriptor is left: the load fails, not the server
        _LOG.exception("an instance could not be started")
        return LoadError(f"{type(exc).__name__}: {exc}", Code.INTERNAL)
    version.statistics.merge(change.statistics)
    version.settings = change.settings
    version.signatures = change.signatures
    return None


def _failed(error: LoadError) -> Record:
    return Record(State.UNAVAILABLE, f"{error.code.value}: {error.text}")


def _piece(number: int, error: LoadError, ready: bool) -> str:
    state = State.READY if ready else State.UNAVAILABLE
    return f"version {number} is at {state.value} state: {error.code.value}: {error.text};"
