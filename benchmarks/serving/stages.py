"""Where the time of an inference goes: a profile of the server's infer path, stage by stage.

The server runs with a clock around the functions that make up the path, and wrk asks it. What a stage costs
is its time without that of the stages within it, divided by the requests; what the clocks cost is measured
first and taken off. Beside the stages there is the processor time that is in none of them: the kernel's
work to receive, the loop, and its calls into Python.

``python benchmarks/serving/stages.py --help`` lists the options.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Contender, binary_headers, measure, need_wrk, options, save, show, start, stop
from model import write_repository
from risk_model import BINARY_BODY, BINARY_HEADER, JSON_BODY, JSON_HEADERS

_RESULT = "REPOBUILD_BENCH_STAGES"


class Clocks:
    """Time spent in functions, each without what it calls of the others."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self.within = [0]

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The function with a clock around it."""
        self.spent[name] = self.calls[name] = 0
        spent, calls, within, now = self.spent, self.calls, self.within, time.perf_counter_ns

        def run(*arguments: Any, **named: Any) -> Any:
            within.append(0)
            began = now()
            try:
                return call(*arguments, **named)
            finally:
                took = now() - began
                spent[name] += took - within.pop()
                within[-1] += took
                calls[name] += 1

        return run

    def method(self, owner: Any, attribute: str, name: str) -> None:
        """Put a clock around a method of a class or a function of a module."""
        setattr(owner, attribute, self.timed(name, getattr(owner, attribute)))


def cost_of_a_clock() -> tuple[float, float]:
    """What a clock adds to its own stage and to the one around it, in ns a call."""
    clocks = Clocks()
    inner = clocks.timed("inner", lambda: None)
    outer = clocks.timed("outer", lambda: [inner() for _ in range(1000)])
    plain = lambda: [None for _ in range(1000)]  # noqa: E731
    for _ in range(200):
        outer()
    began = time.perf_counter_ns()
    for _ in range(200):
        plain()
    alone = time.perf_counter_ns() - began
    return clocks.spent["inner"] / 200_000, (clocks.spent["outer"] - alone) / 200_000


def serve_with_clocks(arguments: list[str]) -> None:
    """Run the server's command in this process, and write what the clocks show at its end."""
    from repobuild_serve import cli
    from repobuild_serve.backends.onnx_instance import OnnxInstance
    from repobuild_serve.core.execution import Executor
    from repobuild_serve.http import infer
    from repobuild_serve.http.protocol import Connection
    from repobuild_serve.scheduling.delivery import Delivery
    from repobuild_serve.scheduling.forming import BatchFormer
    from repobuild_serve.scheduling.scheduler import Scheduler
    from repobuild_serve.scheduling.timer import DeadlineTimer

    own, around = cost_of_a_clock()
    clocks = Clocks()
    clocks.method(Connection, "data_received", "find the known header")
    clocks.method(infer.InferService, "begin", "take the request")
    clocks.method(infer, "read_known_layout", "read the body")
    make = infer.reader
    infer.reader = lambda plan: clocks.timed("read the body", make(plan))
    clocks.method(Scheduler, "submit", "queue it")
    clocks.method(Scheduler, "_pump", "form and hand out batches")
    clocks.method(BatchFormer, "form", "form and hand out batches")
    clocks.method(DeadlineTimer, "arm", "arm the timer")
    clocks.method(Executor, "execute", "gather inputs, check outputs")
    clocks.method(OnnxInstance, "run", "session.run")
    clocks.method(Delivery, "finish", "hand out answers, count")
    clocks.method(infer.InferService, "deliver", "hand out answers, count")
    clocks.method(infer.InferService, "_write", "write the response")
    clocks.method(Connection, "write_only", "send")
    try:
        cli.main(arguments)
    finally:
        Path(os.environ[_RESULT]).write_text(
            json.dumps({"spent": clocks.spent, "calls": clocks.calls, "own": own, "around": around}),
            encoding="utf-8",
        )


def profile(folder: Path, name: str, body: bytes, headers: dict[str, str], seconds: int) -> dict[str, float]:
    """Microseconds a request by stage."""
    ports, result = folder / f"{name}.json", folder / f"{name}-stages.json"
    command = [sys.executable, __file__, "serve", str(folder / "repository"), "--port-file", str(ports)]
    process, port = start(
        [*command, "--http-port", "0", "--no-allow-metrics"], ports, **{_RESULT: str(result)}
    )
    url = f"http://127.0.0.1:{port}/v2/models/risk_model/infer"
    contender = Contender(name, process, url, body, headers)
    try:
        before = contender.cpu_seconds()
        measure(contender, folder, seconds, 64)
        spent_cpu = contender.cpu_seconds() - before
    finally:
        stop([process])
    shown = json.loads(result.read_text(encoding="utf-8"))
    calls, own, around = shown["calls"], shown["own"], shown["around"]
    requests = calls["take the request"]
    table = {
        stage: max(0.0, (spent - calls[stage] * own) / requests / 1000)
        for stage, spent in shown["spent"].items()
    }
    clocks = sum(calls.values()) * (own + around) / requests / 1000
    table["receive, loop"] = spent_cpu * 1e6 / requests - sum(table.values()) - clocks
    table["all"] = spent_cpu * 1e6 / requests - clocks
    return table


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve_with_clocks(sys.argv[2:])
        return
    parser: argparse.ArgumentParser = options("Profile of the infer path.", rounds=3)
    given = parser.parse_args()
    need_wrk()
    rows: dict[str, list[dict[str, float]]] = {"JSON": [], "binary": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_repository(folder / "repository")
        for number in range(given.rounds):
            for kind, body, headers in (
                ("JSON", JSON_BODY, JSON_HEADERS),
                ("binary", BINARY_BODY, binary_headers(BINARY_HEADER)),
            ):
                rows[kind].append(profile(folder, f"{kind.lower()}{number}", body, headers, given.seconds))
    table = {
        stage: {
            f"{kind}, us": sorted(row[stage] for row in taken)[len(taken) // 2]
            for kind, taken in rows.items()
        }
        for stage in rows["JSON"][0]
    }
    show(table)
    save("stages", medians=table, runs=rows)


if __name__ == "__main__":
    main()
