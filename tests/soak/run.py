"""One soak from start to end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.actors.disconnects import Disconnects
from tests.soak.actors.killer import Killer
from tests.soak.actors.malformed import Malformed
from tests.soak.actors.observer import Observer, check_totals
from tests.soak.actors.reloader import Reloader
from tests.soak.actors.streams import Streams
from tests.soak.actors.swapper import Swapper
from tests.soak.actors.traffic import Traffic
from tests.soak.actors.visitor import Visitor
from tests.soak.context import Soak
from tests.soak.leaks import Holdings, grown, settled
from tests.soak.models import MODELS, Repository, write_backend
from tests.soak.server import Server
from tests.soak.truth import Life, Span, now

ACTORS = (
    "traffic",
    "streams",
    "swapper",
    "reloader",
    "visitor",
    "disconnects",
    "killer",
    "malformed",
    "observer",
)
_SWAPPED = ("scale", "large", "ordered", "patient", "snake", "burst")
_EXTRA_THREADS = 2


@dataclass(frozen=True)
class Options:
    """What to do.

    Attributes:
        seconds: Length of the load, without start, warm-up and end.
        warm_up: Length of the load before the first look at what is held.
        looks: How often the load is paused in between to look.
        mode: Control mode of the server.
        seed: What all random decisions come from.
        actors: Who takes part.
        models: Which models there are.
        clients: Number of asking clients.
        pace: Factor on the pauses of swapper, reloader, visitor and killer.
        extra: Further words of the server's command line.
    """

    seconds: float
    warm_up: float
    looks: int = 1
    mode: str = "explicit"
    seed: int = 0
    actors: tuple[str, ...] = ACTORS
    models: tuple[str, ...] = tuple(model.name for model in MODELS)
    clients: int = 6
    pace: float = 1.0
    extra: tuple[str, ...] = ()


@dataclass
class Result:
    """What came of it.

    Attributes:
        soak: The book and all else.
        holdings: What was held after the warm-up, at each look and at the end.
        seconds: How long the load was on.
    """

    soak: Soak
    holdings: list[tuple[float, Holdings]] = field(default_factory=list)
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """As JSON."""
        ledger = self.soak.ledger
        return {
            "seed": self.soak.seed,
            "mode": self.soak.mode,
            "seconds": round(self.seconds, 1),
            "violations": ledger.broken,
            "violations_told": ledger.violations,
            "done": dict(sorted(ledger.done.items())),
            "models": {
                name: {
                    "sent": ledger.sent[name],
                    "right": ledger.good[name],
                    "abandoned": ledger.abandoned[name],
                    "refused": {
                        why: n for (model, why), n in sorted(ledger.refused.items()) if model == name
                    },
                    "slowest_seconds": round(ledger.slowest.get(name, 0.0), 3),
                }
                for name in self.soak.models
            },
            "holdings": [{"at_seconds": round(at, 1), **asdict(held)} for at, held in self.holdings],
        }


def _options(options: Options) -> list[str]:
    words = [f"--model-control-mode={options.mode}"] if options.mode != "none" else []
    if options.mode == "explicit":
        words.append("--load-model=*")
    if options.mode == "poll":
        words.append("--repository-poll-secs=0.5")
    return [*words, *options.extra]


def _crew(soak: Soak, options: Options) -> list[Coroutine[Any, Any, None]]:
    """Those who act, as coroutines."""
    models = soak.models
    asked = [model for model in models.values() if model.backend != "decoupled"]
    swapped = [models[name] for name in _SWAPPED if name in models]
    children = sum(count for name, count in (("snake", 3), ("burst", 2)) if name in models)
    changing = options.mode != "none"
    found: list[tuple[str, bool, Any]] = [
        *(("traffic", bool(asked), Traffic(soak, f"client{n}", asked)) for n in range(options.clients)),
        *(("streams", "burst" in models, Streams(soak, f"stream{n}")) for n in range(2)),
        ("swapper", changing and bool(swapped), Swapper(soak, swapped, 1.5 * options.pace)),
        ("visitor", changing and "visitor" in models, Visitor(soak, 3 * options.pace)),
        *(("disconnects", bool(asked), Disconnects(soak, f"leaver{n}", asked)) for n in range(2)),
        ("killer", bool(children), Killer(soak, children, 12 * options.pace)),
        ("malformed", "scale" in models, Malformed(soak)),
        ("observer", True, Observer(soak)),
    ]
    if changing and "tuned" in models:
        found.append(("reloader", True, Reloader(soak, 3 * options.pace)))
    return [actor.run() for name, possible, actor in found if possible and name in options.actors]


async def run(options: Options, folder: Path) -> Result:
    """Start a server, let everyone act on it, and look at what is left.

    Args:
        options: What to do.
        folder: An empty folder for everything that is written.

    Raises:
        RuntimeError: The server did not start.
    """
    repository = Repository(folder / "repository", folder / "parts")
    models = {model.name: model for model in MODELS if model.name in options.models}
    for model in models.values():
        repository.add(model)
    write_backend(folder / "plugins")
    server = Server.start(folder, repository.path, folder / "plugins", _options(options))
    soak = Soak(server, repository, models, options.mode, options.seed)
    soak.lives = {name: Life({1: Span(now())}) for name in models}
    result = Result(soak)
    began = time.monotonic()
    try:
        await _load(soak, options, result)
    finally:
        result.seconds = time.monotonic() - began
        for problem in await server.stop():
            soak.ledger.violated(f"at the end: {problem}")
    return result


async def _load(soak: Soak, options: Options, result: Result) -> None:
    began = now()
    crew = asyncio.ensure_future(_together(_crew(soak, options)))
    try:
        await _stretch(soak, crew, options.warm_up)
        await _look(soak, result, began)
        stretches = options.looks + 1
        for _ in range(stretches):
            await _stretch(soak, crew, options.seconds / stretches)
            await _look(soak, result, began)
            if crew.done() or not soak.server.alive():
                break
    finally:
        soak.ending.set()
        await _end_of(crew, soak)
    if len(result.holdings) > 1:
        for text in grown(result.holdings[0][1], result.holdings[-1][1]):
            soak.ledger.violated(text)
    if open_requests := soak.ledger.open_requests():
        soak.ledger.violated(f"{open_requests} requests without a right answer or an allowed refusal")


async def _together(crew: list[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for actor in crew:
            group.create_task(actor)


async def _stretch(soak: Soak, crew: asyncio.Future[None], seconds: float) -> None:
    """Let the load be on for a while, or until an actor or the server has ended."""
    deadline = now() + seconds
    while now() < deadline and not crew.done():
        if not soak.server.alive():
            soak.ledger.violated(f"the server ended with status {soak.server.process.returncode}")
            return
        await asyncio.wait([crew], timeout=min(0.5, max(0.01, deadline - now())))


async def _look(soak: Soak, result: Result, began: float) -> None:
    """Pause the load, and look at what is held and counted."""
    if not soak.server.alive():
        return
    try:
        async with soak.gate.closed():
            for hang_up in soak.paused:
                hang_up()
            result.holdings.append((now() - began, await settled(soak.server)))
            with soak.noting("counters"):
                await check_totals(soak)
    except TimeoutError:
        soak.ledger.violated("a round of an actor does not end")


async def _end_of(crew: asyncio.Future[None], soak: Soak) -> None:
    try:
        async with asyncio.timeout(180):
            await crew
    except TimeoutError:
        soak.ledger.violated("an actor did not end")
    except BaseExceptionGroup as group:
        for exc in group.exceptions:
            soak.ledger.violated(f"an actor ended with {type(exc).__name__}: {exc}")
            with contextlib.suppress(Exception):
                import traceback

                traceback.print_exception(exc)
