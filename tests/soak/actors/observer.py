"""Reads statistics, metrics, health and the index, and checks that they are consistent."""

from __future__ import annotations

import random
import re
from typing import Any

from tests.soak.context import Soak
from tests.soak.ledger import Wrong
from tests.soak.models import MEMBERS
from tests.soak.truth import now
from tests.soak.wire import ask

_STATES = {"READY", "LOADING", "UNLOADING", "UNAVAILABLE"}
_LINE = re.compile(r"(\w+)\{(.*)\} (\S+)")


class Observer:
    """Looks at the server all the time.

    Args:
        soak: What actors share.
    """

    def __init__(self, soak: Soak) -> None:
        self._soak = soak
        self._rng: random.Random = soak.rng("observer")
        self._last: dict[tuple[str, str], tuple[float, dict[str, int]]] = {}

    async def run(self) -> None:
        """Look until the end."""
        rng = self._rng
        looks = (self._statistics, self._statistics, self._metrics, self._index, self._health)
        async for _ in self._soak.rounds("observer", lambda: rng.uniform(0.05, 0.5)):
            look = rng.choice(looks)
            with self._soak.noting(f"observer, {look.__name__.strip('_')}"):
                await look()
                self._soak.ledger.done["looks"] += 1

    async def _statistics(self) -> None:
        start = now()
        reply = await ask(self._soak.server.port, "GET", "/v2/models/stats")
        end = now()
        for entry in reply.json["model_stats"]:
            check_identities(entry, damaged=bool(self._soak.lives[entry["name"]].lost))
            key, counters = (entry["name"], entry["version"]), _counters(entry)
            since, last = self._last.get(key, (end, {}))
            life = self._soak.lives[entry["name"]]
            self._last[key] = (start, counters)
            if not life.reset(since, end):
                for name, value in last.items():
                    if counters.get(name, 0) < value:
                        raise Wrong(f"{key}: {name} went back from {value} to {counters.get(name, 0)}")

    async def _metrics(self) -> None:
        found = await metrics(self._soak)
        if not found:
            raise Wrong("there are no metrics of models")

    async def _index(self) -> None:
        start = now()
        reply = await ask(self._soak.server.port, "POST", "/v2/repository/index")
        end = now()
        items = reply.json
        if any(item.get("state", "READY") not in _STATES for item in items):
            raise Wrong(f"unknown state: {items}")
        names = [item["name"] for item in items]
        if names != sorted(names):
            raise Wrong(f"not sorted: {names}")
        for name, life in self._soak.lives.items():
            if life.away(start, end):
                continue
            ready = [
                int(item["version"])
                for item in items
                if item["name"] == name and item.get("state") == "READY"
            ]
            if not ready or any(not life.may_answer(version, start, end) for version in ready):
                raise Wrong(f"{name}: READY versions {ready}, which cannot be")

    async def _health(self) -> None:
        reply = await ask(self._soak.server.port, "GET", "/v2/health/live")
        if reply.status != 200 or reply.body:
            raise Wrong(f"not live: {reply.status}")
        reply = await ask(self._soak.server.port, "GET", "/v2/health/ready")
        if reply.status not in {200, 400}:
            raise Wrong(f"ready: {reply.status}")


def check_identities(entry: dict[str, Any], *, damaged: bool) -> None:
    """Check one entry of the statistics.

    Args:
        entry: As in ``model_stats``.
        damaged: Whether executions may have failed, which are in the batches but not in the inferences.

    Raises:
        Wrong: The numbers contradict one another.
    """
    batches, stats = entry["batch_stats"], entry["inference_stats"]
    total = sum(item["batch_size"] * item["compute_infer"]["count"] for item in batches)
    executions = sum(item["compute_infer"]["count"] for item in batches)
    where = f"{entry['name']}, version {entry['version']}"
    if not (total == entry["inference_count"] or (damaged and total > entry["inference_count"])):
        raise Wrong(f"{where}: batches of {total} rows, {entry['inference_count']} inferences")
    if executions != entry["execution_count"]:
        raise Wrong(f"{where}: {executions} executions in batches, {entry['execution_count']} counted")
    if entry["inference_count"] < stats["success"]["count"]:
        raise Wrong(f"{where}: fewer inferences than successes: {entry}")
    negative = [key for key, value in stats.items() if value["ns"] < 0 or value["count"] < 0]
    if negative:
        raise Wrong(f"{where}: negative {negative}")


def _counters(entry: dict[str, Any]) -> dict[str, int]:
    found = {name: entry[name] for name in ("last_inference", "inference_count", "execution_count")}
    for name, value in entry["inference_stats"].items():
        found[f"{name}.count"], found[f"{name}.ns"] = value["count"], value["ns"]
    for item in entry["batch_stats"]:
        found[f"batch {item['batch_size']}"] = item["compute_infer"]["count"]
    return found


async def metrics(soak: Soak) -> dict[tuple[str, str, str], float]:
    """The metrics of models, by metric, model and version; those with a reason are added up."""
    reply = await ask(soak.server.metrics_port, "GET", "/metrics")
    found: dict[tuple[str, str, str], float] = {}
    for line in reply.body.decode().splitlines():
        if line.startswith("#") or not line:
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            if len(line.split()) != 2:
                raise Wrong(f"not a line of metrics: {line!r}")
            continue
        labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2]))
        value = float(match[3])
        if value < 0:
            raise Wrong(f"negative: {line}")
        if "model" in labels:
            key = (match[1], labels["model"], labels["version"])
            found[key] = found.get(key, 0) + value
    return found


async def check_totals(soak: Soak) -> None:
    """Compare the counters of models that never started anew with the book, while nothing is under way.

    Raises:
        Wrong: They disagree.
    """
    reply = await ask(soak.server.port, "GET", "/v2/models/stats")
    measured = await metrics(soak)
    for entry in reply.json["model_stats"]:
        name, version = entry["name"], entry["version"]
        stats, life = entry["inference_stats"], soak.lives[name]
        for metric, value in (
            ("nv_inference_request_success", stats["success"]["count"]),
            ("nv_inference_count", entry["inference_count"]),
            ("nv_inference_exec_count", entry["execution_count"]),
        ):
            if measured.get((metric, name, version)) != value:
                raise Wrong(f"{metric} of {name} is {measured.get((metric, name, version))}, not {value}")
        if pending := measured.get(("nv_inference_pending_request_count", name, version)):
            raise Wrong(f"{name}: {pending} requests pending while nothing is under way")
        if life.resets or (name in MEMBERS and "chain" in soak.models):
            continue
        good, abandoned = soak.ledger.good[name], soak.ledger.abandoned[name]
        if not good <= stats["success"]["count"] <= good + abandoned:
            text = f"{stats['success']['count']} successes, {good} right answers, {abandoned} abandoned"
            raise Wrong(f"{name}: {text}")
