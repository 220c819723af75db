"""Sequences of requests whose answers depend on each other, and the ways to play them."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oracle.answers import Aspects, aspects
from oracle.corpus.case import get, post
from oracle.repositories import Model
from oracle.servers import Server
from oracle.wire import Request

SETTLE_LIMIT_S = 15.0


@dataclass(frozen=True)
class Ask:
    """One request."""

    request: Request


@dataclass(frozen=True)
class Steady:
    """A GET, or an index POST, repeated until it answers the same for a while."""

    request: Request


@dataclass(frozen=True)
class Burst:
    """Requests at these times, in milliseconds from the step's start; the answers in this order."""

    entries: tuple[tuple[float, Request], ...]
    read: Callable[[list[Any]], Any] | None = None


@dataclass(frozen=True)
class Write:
    """A file of the repository."""

    path: str
    data: bytes


@dataclass(frozen=True)
class Remove:
    """A file or folder of the repository."""

    path: str


@dataclass(frozen=True)
class Pause:
    """Time goes by."""

    milliseconds: float


Step = Ask | Steady | Burst | Write | Remove | Pause


@dataclass(frozen=True)
class Script:
    """Steps on a server with a stage's models; nothing else may touch the models it names."""

    name: str
    stage: str
    steps: tuple[Step, ...]
    models: tuple[Model, ...] = field(default=())


def play(script: Script, server: Server) -> list[Any]:
    """Run the steps; what each that asks something saw."""
    found: list[Any] = []
    for step in script.steps:
        match step:
            case Ask(request):
                found.append(aspects(server.ask(request), server.repository))
            case Steady(request):
                found.append(_steady(server, request))
            case Burst(entries, read):
                answers = _burst(server, entries)
                found.append(answers if read is None else read(answers))
            case Write(path, data):
                target = server.repository / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
            case Remove(path):
                _remove(server.repository / path)
            case Pause(milliseconds):
                time.sleep(milliseconds / 1000)
    return found


def _steady(server: Server, request: Request) -> Aspects:
    deadline = time.monotonic() + SETTLE_LIMIT_S
    last, same = aspects(server.ask(request), server.repository), 0
    while same < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
        now = aspects(server.ask(request), server.repository)
        moving = isinstance(now.json, list) and any(
            entry.get("state") in {"LOADING", "UNLOADING"} for entry in now.json
        )
        same = same + 1 if not now.differing(last) and not moving else 0
        last = now
    return last


def _burst(server: Server, entries: tuple[tuple[float, Request], ...]) -> list[Aspects]:
    start = time.monotonic() + 0.02

    def one(entry: tuple[float, Request]) -> Aspects:
        delay, request = entry
        time.sleep(max(0.0, start + delay / 1000 - time.monotonic()))
        return aspects(server.ask(request), server.repository)

    with ThreadPoolExecutor(len(entries)) as pool:
        return list(pool.map(one, entries))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def load(model: str, config: str | dict[str, Any] | None = None, **files: bytes) -> Ask:
    """A load; of files, the keyword is the path with ``__`` for ``/`` and ``_dot_`` for a point."""
    parameters: dict[str, Any] = {}
    if config is not None:
        parameters["config"] = config if isinstance(config, str) else json.dumps(config)
    for name, data in files.items():
        path = name.removeprefix("v").replace("__", "/").replace("_dot_", ".")
        parameters[f"file:{path}"] = base64.b64encode(data).decode()
    return Ask(post(f"/v2/repository/models/{model}/load", {"parameters": parameters} if parameters else {}))


def unload(model: str, **parameters: Any) -> Ask:
    """An unload."""
    return Ask(
        post(f"/v2/repository/models/{model}/unload", {"parameters": parameters} if parameters else {})
    )


def statistics(model: str) -> Steady:
    """The statistics, once they do not move."""
    return Steady(get(f"/v2/models/{model}/stats"))


def ready(model: str = "") -> Ask:
    """Readiness of a model, or the server."""
    return Ask(get(f"/v2/models/{model}/ready" if model else "/v2/health/ready"))


INDEX = Steady(post("/v2/repository/index", {}))
