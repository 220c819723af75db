"""What the serving benchmarks share: starting servers, asking them once, measuring with wrk, writing results.

Rounds are interleaved: each round measures every contender once, so that a slow minute hits all of them. A
server that answers wrongly is not measured.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).resolve().parent.parent / "results"


@dataclass
class Contender:
    """A running server and how to ask it.

    Attributes:
        name: Name in the table.
        process: The server.
        url: Where it is asked.
        body: What it is asked.
        headers: Headers of the request.
    """

    name: str
    process: subprocess.Popen[bytes]
    url: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self) -> tuple[bytes, dict[str, str]]:
        """One answer: its body and headers."""
        request = urllib.request.Request(self.url, self.body, self.headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.read(), {name.lower(): value for name, value in response.headers.items()}

    def processes(self) -> list[psutil.Process]:
        """All processes of the server."""
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def cpu_seconds(self) -> float:
        """Processor time of all processes."""
        return sum(sum(process.cpu_times()[:2]) for process in self.processes())

    def rss_mib(self) -> float:
        """Resident memory of all processes."""
        return sum(process.memory_info().rss for process in self.processes()) / 2**20


def start(command: Sequence[str], port_file: Path, **environment: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server that writes its port to a file; the process and the port."""
    process = subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not port_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"it did not start: {' '.join(command)}")
        time.sleep(0.002)
    return process, int(json.loads(port_file.read_text(encoding="utf-8"))["http"])


def serve(repository: Path, port_file: Path, *options: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start the bundled server on a repository."""
    return start(
        [
            *(sys.executable, "-m", "repobuild_serve", str(repository), "--port-file", str(port_file)),
            *("--http-port", "0", "--no-allow-metrics", *options),
        ],
        port_file,
    )


def binary_headers(header: bytes) -> dict[str, str]:
    """The headers of a request whose JSON part is ``header``."""
    return {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(header)),
    }


def measure(contender: Contender, folder: Path, seconds: int, connections: int) -> dict[str, float]:
    """One run of wrk."""
    script = folder / f"{re.sub('[^a-z]', '_', contender.name.lower())}.lua"
    if not script.exists():
        _write_script(script, contender.body, contender.headers)
    before = contender.cpu_seconds()
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script)]
    text = subprocess.run([*command, contender.url], capture_output=True, text=True, check=True).stdout
    spent = contender.cpu_seconds() - before
    if "Non-2xx" in text or "Socket errors" in text:
        raise SystemExit(f"{contender.name} answered with errors:\n{text}")
    requests = int(_found(r"(\d+) requests in", text))
    return {
        "requests_per_second": float(_found(r"Requests/sec:\s+([\d.]+)", text)),
        "p50_ms": _milliseconds(_found(r"(?m)^\s+50%\s+(\S+)$", text)),
        "p99_ms": _milliseconds(_found(r"(?m)^\s+99%\s+(\S+)$", text)),
        "cpu_us_per_request": spent / requests * 1e6,
        "rss_mib": contender.rss_mib(),
    }


def interleaved(measurements: dict[str, Callable[[], dict[str, float]]], rounds: int) -> dict[str, Any]:
    """Take every measurement once a round; the runs by name."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in measurements}
    for number in range(rounds):
        for name, take in measurements.items():
            runs[name].append(take())
        print(f"round {number + 1} of {rounds} done", file=sys.stderr)
    return runs


def medians(runs: dict[str, list[dict[str, float]]], *peers: str) -> dict[str, dict[str, float]]:
    """Medians over the rounds, and the throughput as a ratio to the peers' of the same run."""
    table = {
        name: {key: statistics.median(run[key] for run in taken) for key in taken[0]}
        for name, taken in runs.items()
    }
    for row in table.values():
        for peer in peers:
            if peer in table:
                row[f"x {peer}"] = row["requests_per_second"] / table[peer]["requests_per_second"]
    return table


def show(table: dict[str, dict[str, float]]) -> None:
    """Print a table, one row a name."""
    titles = list(dict.fromkeys(title for row in table.values() for title in row))
    width = max(map(len, table)) + 2
    print(" " * width + "".join(f"{title:>{len(title) + 2}}" for title in titles))
    for name, row in table.items():
        cells = (f"{row.get(title, float('nan')):{len(title) + 2}.2f}" for title in titles)
        print(f"{name:{width}}" + "".join(cells))


def options(description: str, *, rounds: int = 5, seconds: int = 5) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seconds", type=int, default=seconds, help="length of one measurement")
    return parser


def need_wrk() -> None:
    """End if wrk is not installed."""
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed; on Debian: apt-get install wrk")


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Stop servers."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def save(name: str, **content: Any) -> None:
    """Write results, with when and where they were taken."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    document = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {"cores": os.cpu_count(), "architecture": platform.machine()},
        "python": platform.python_version(),
        **content,
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1), encoding="utf-8")


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise SystemExit(f"wrk's output has no {pattern!r}:\n{text}")
    return match.group(1)


def _milliseconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()  # type: ignore[union-attr]
    return float(number) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[unit]


def _write_script(path: Path, body: bytes, headers: dict[str, str]) -> None:
    escaped = "".join(f"\\{byte:03d}" for byte in body)
    lines = ['wrk.method = "POST"', f'wrk.body = "{escaped}"']
    lines += [f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items()]
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
