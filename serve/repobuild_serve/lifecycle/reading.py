"""Reading everything that a load has to do with: the models asked for, and those they are made of."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from repobuild_serve.errors import ConfigError, StartError
from repobuild_serve.lifecycle.changing import all_of
from repobuild_serve.lifecycle.graph import members
from repobuild_serve.lifecycle.loading import Reading, Source, read_source
from repobuild_serve.lifecycle.overrides import Overrides
from repobuild_serve.lifecycle.pool import Pool

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Found:
    """What was read.

    Attributes:
        names: Every model that was looked at.
        changed: Models that are not as they were when they were loaded.
        unreadable: Why a model is not usable, by name.
    """

    names: set[str] = field(default_factory=set)
    changed: dict[str, Source] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)

    def discard(self) -> None:
        """Throw away what was read."""
        for source in self.changed.values():
            source.discard()


async def read_all(
    requests: Mapping[str, Overrides], known: Mapping[str, Source], reading: Reading, pool: Pool
) -> Found:
    """Read models, and the members of those that are ensembles, and so on.

    A member whose files came with a request is as it was loaded: what lies on disk, if anything, is another
    model.

    Args:
        requests: What each request brought along, by model name.
        known: What the models that serve were loaded from.
        reading: How to read.
        pool: Where to read.

    Raises:
        StartError: A package is missing.
    """
    found = Found()
    waiting = set(requests)
    while waiting:
        found.names |= waiting
        names = sorted(waiting)
        sources = await all_of(
            _unchanged()
            if name not in requests and name in known and known[name].scratch is not None
            else _read(name, requests.get(name, Overrides()), known.get(name), reading, pool)
            for name in names
        )
        waiting = set()
        for name, source in zip(names, sources, strict=True):
            if isinstance(source, ConfigError):
                found.unreadable[name] = source.text
                continue
            if source is not None:
                found.changed[name] = source
            config = (source or known[name]).folder.config
            waiting |= members(config) - found.names
    return found


async def _unchanged() -> None:
    """A model that need not be read."""


async def _read(
    name: str, overrides: Overrides, known: Source | None, reading: Reading, pool: Pool
) -> Source | ConfigError | None:
    try:
        return await pool.run(lambda: read_source(name, overrides, reading, known), _drop)
    except ConfigError as exc:
        return exc
    except StartError:
        raise
    except Exception as exc:  # noqa: BLE001 - a backend plug-in may raise anything; its model is then not usable
        _LOG.exception("model %s: unexpected error", name)
        return ConfigError(f"{type(exc).__name__}: {exc}")


def _drop(source: Source | None) -> None:
    if source is not None:
        source.discard()
