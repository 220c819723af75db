"""Carrying out loads, reloads and unloads (Triton contract, load, reload, swap)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from repobuild_serve.config.ensemble import check_dependencies, check_ensemble, circular_ensembles
from repobuild_serve.config.validate import validate_model
from repobuild_serve.core.services import Services
from repobuild_serve.core.ticket import Sink
from repobuild_serve.errors import Code, ConfigError, LoadError, RequestError, StartError
from repobuild_serve.lifecycle.changing import Changer, all_of
from repobuild_serve.lifecycle.directory import Models
from repobuild_serve.lifecycle.fingerprint import Fingerprint, fingerprint
from repobuild_serve.lifecycle.graph import dependents, leaving, levels, members
from repobuild_serve.lifecycle.loading import Reading, Source
from repobuild_serve.lifecycle.natives import import_natives
from repobuild_serve.lifecycle.options import ControlOptions, Mode
from repobuild_serve.lifecycle.overrides import Overrides, check_name, overrides_from
from repobuild_serve.lifecycle.pool import Pool
from repobuild_serve.lifecycle.reading import Found, read_all
from repobuild_serve.lifecycle.reservations import Reservations
from repobuild_serve.repository import find_model, model_names

_LOG = logging.getLogger(__name__)
_READERS = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a load ended.

    Attributes:
        failures: Why a model could not be loaded, by name.
        unreadable: Why a model was not even tried, by name.
    """

    failures: Mapping[str, str]
    unreadable: Mapping[str, str]


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
        self._loop = services.loop
        self._reading = Reading(
            options.repositories,
            options.auto_complete,
            options.config_name,
            options.gpus,
            options.min_compute_capability,
        )
        self._readers = Pool(services.loop, _READERS, "read")
        # Apart, for a model that completes its config may take as long as it likes over it.
        self._lookers = Pool(services.loop, 1, "look")
        self._loaders = Pool(services.loop, options.threads, "load")
        self._changer = Changer(models, services, sink, self._loaders, options.retries)
        self._reservations = Reservations()
        self._asked: set[str] = set()
        self._operations: set[asyncio.Future[None]] = set()
        self._ending = False
        models.commands = self

    # Commands

    async def load(self, name: str, parameters: Mapping[str, str | bytes]) -> None:
        """See ``Directory.load``."""
        overrides = overrides_from(parameters)
        self._check_allowed()
        check_name(name)
        with self._operation():
            try:
                outcome = await self._load({name: overrides})
            except StartError as exc:
                raise RequestError(exc.render(), Code.INTERNAL) from exc
        if name in outcome.failures:
            raise RequestError(f"load failed for model '{name}': {outcome.failures[name]}\n")
        for unreadable, text in outcome.unreadable.items():
            _LOG.error("Poll failed for model directory '%s': %s", unreadable, text)
        if outcome.unreadable:
            raise RequestError(
                f"failed to load '{name}', failed to poll from model repository", Code.INTERNAL
            )

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        """See ``Directory.unload``."""
        self._check_allowed()
        with self._operation():
            await self._unload(name, cascade=dependents)

    async def names(self) -> tuple[list[str], list[str]]:
        """See ``Commands.names``."""
        return await self._lookers.run(lambda: _names(self._options.repositories))

    # The start and the end

    async def load_startup(self) -> list[str]:
        """Load what is to be there from the start.

        Returns:
            One line per model that is not fully READY.

        Raises:
            StartError: A package that the models need is missing, and that is to end the server.
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
        self._changer.starting = options.exit_on_error
        try:
            with self._operation():
                outcome = await self._load({name: Overrides() for name in names})
        finally:
            self._changer.starting = False
        for name, text in outcome.unreadable.items():
            _LOG.error("Poll failed for model directory '%s': %s", name, text)
            problems.append(f"{name}: {text}")
        for name, text in sorted(outcome.failures.items()):
            model = self._models.tracked.get(name)
            failed = {n: r.reason for n, r in sorted(model.records.items()) if r.failed} if model else {}
            problems += [
                f"{name}, version {number}: {reason}" if number >= 0 else f"{name}: {reason}"
                for number, reason in failed.items()
            ] or [f"{name}: {text}"]
        return problems

    def refuse(self) -> None:
        """Begin no load or unload any more."""
        self._ending = True

    async def end(self) -> None:
        """Let loads that have begun finish, then unload everything and wait until it is gone."""
        self.refuse()
        while self._operations:
            await asyncio.wait(self._operations)
        await self._loaders.idle()
        for name in tuple(self._models.tracked):
            self._models.retire(name)
        await self._models.gone()
        await self._loaders.idle()
        self.close()

    def close(self) -> None:
        """Release what the process must not leave behind. Does not wait."""
        self._changer.close()
        self._readers.close()
        self._lookers.close()
        self._loaders.close()

    # Poll mode

    @property
    def known(self) -> Mapping[str, Source]:
        """What the models that serve were loaded from, by name."""
        return self._changer.known

    async def refresh(self, names: Iterable[str]) -> Mapping[str, str]:
        """Load models, or bring them up to date.

        Returns:
            Why a model cannot be read, by name.

        Raises:
            StartError: A package is missing.
        """
        with self._operation():
            return (await self._load({name: Overrides() for name in names})).unreadable

    async def remove(self, name: str) -> None:
        """Unload a model that is in no repository any more."""
        with self._operation():
            await self._unload(name, cascade=False)
        self._models.forget_failures(name)

    async def look(self, name: str) -> Fingerprint:
        """The state of a model's files.

        Raises:
            ConfigError: There is no such model, or there are two.
            OSError: It cannot be read.
        """
        return await self._lookers.run(lambda: fingerprint(find_model(self._options.repositories, name)))

    # Operations

    @contextlib.contextmanager
    def _operation(self) -> Iterator[None]:
        """Something that must come to its end before the server may unload everything."""
        if self._ending:
            raise RequestError("Server not ready", Code.UNAVAILABLE)
        done: asyncio.Future[None] = self._loop.create_future()
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

    async def _load(self, requests: Mapping[str, Overrides]) -> Outcome:
        """Load models, or bring them up to date, and the ensembles that they are part of.

        Raises:
            StartError: A package is missing.
        """
        known = self._changer.known
        held = set(requests)
        while True:
            async with self._reservations.hold(held):
                found = await read_all(requests, known, self._reading, self._readers)
                more = dependents(self._configs(), found.changed.keys())
                if found.names | more <= held:
                    self._asked |= requests.keys() - found.unreadable.keys()
                    return Outcome(await self._change(found, more), found.unreadable)
            # Only now is it known which models belong together; in the meantime anything may have changed.
            found.discard()
            held = held | found.names | more

    async def _change(self, found: Found, more: Iterable[str]) -> dict[str, str]:
        """Bring up what was found to be changed, members before ensembles; failures by name."""
        sources = {name: self._changer.known[name] for name in more} | found.changed
        configs = {name: source.folder.config for name, source in sources.items()}
        circular = circular_ensembles(self._configs() | configs)
        failures: dict[str, str] = {}
        for level in levels(configs):
            texts = await all_of(
                self._change_one(name, sources[name], failures, circular.get(name, "")) for name in level
            )
            failures |= {name: text for name, text in zip(level, texts, strict=True) if text}
        return failures

    async def _change_one(self, name: str, source: Source, failures: Mapping[str, str], circular: str) -> str:
        if members(source.folder.config):
            try:
                self._check_members(source, failures, circular)
            except LoadError as exc:
                self._drop_ensemble(name, exc.text)
                # Without a fingerprint: the next load is to try again, whatever has changed.
                self._changer.known[name] = replace(source, print=None)
                self._changer.share(source)
                return exc.text
        return await self._changer.change(name, source)

    def _check_members(self, source: Source, failures: Mapping[str, str], circular: str) -> None:
        """Check that what an ensemble is made of is there and fits together.

        Raises:
            LoadError: It is not, or does not.
        """
        if circular:
            raise LoadError(circular)
        config = source.folder.config
        needed = members(config)
        loaded = {member: self._models.versions(member) for member in needed}
        tracked = {member for member in needed if member in self._changer.known or member in failures}
        if tracked == needed:
            numbers = {member: [v.version for v in versions] for member, versions in loaded.items()}
            check_dependencies(config, numbers, {}, failures)
        decoupled = check_ensemble(
            config,
            {
                member: versions[-1].settings.message if versions else None
                for member, versions in loaded.items()
            },
        )
        config.model_transaction_policy.decoupled = decoupled
        try:
            validate_model(config)
        except ConfigError as exc:
            raise LoadError(exc.text) from exc

    async def _unload(self, name: str, *, cascade: bool) -> None:
        """Unload a model.

        Args:
            name: Model name.
            cascade: Whether what was loaded only because the model is made of it goes, too.
        """
        held = {name}
        while True:
            async with self._reservations.hold(held):
                configs = self._configs()
                gone = leaving(configs, name, self._asked) if cascade else {name}
                broken = dependents(configs, gone)
                if gone | broken <= held:
                    for one in sorted(gone):
                        self._changer.known.pop(one, None)
                        self._asked.discard(one)
                        self._models.retire(one)
                    self._changer.sweep()
                    for ensemble in sorted(broken):
                        self._drop_ensemble(ensemble, f"a model that it is made of was unloaded: {name}")
                    return
            held = held | gone | broken

    def _drop_ensemble(self, name: str, text: str) -> None:
        """Let an ensemble go that cannot be run; it comes back with its members."""
        _LOG.error("ensemble '%s' is not served: %s", name, text)
        self._models.retire(name)

    def _configs(self) -> dict[str, object]:
        return {name: source.folder.config for name, source in self._changer.known.items()}


def _names(repositories: Sequence[Path]) -> tuple[list[str], list[str]]:
    seen: set[str] = set()
    twice: set[str] = set()
    for repository in repositories:
        names = set(model_names(repository))
        twice |= seen & names
        seen |= names
    return sorted(seen), sorted(twice)
