"""Throughput of the bundled server against mosec and a bare loop, side by side on this machine.

Rounds are interleaved: each round measures every server once, so that a slow minute hits all of them; the
table shows medians. A server that answers wrongly is not measured. ``python benchmarks/serving/run.py
--help`` lists the options.
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
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime
import psutil
from model import ROW, write_repository

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "serving.json"
JSON_BODY = json.dumps(
    {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [ROW]}]},
    separators=(",", ":"),
).encode()
BINARY_HEADER = json.dumps(
    {
        "inputs": [
            {"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
        ],
        "parameters": {"binary_data_output": True},
    },
    separators=(",", ":"),
).encode()
BINARY_BODY = BINARY_HEADER + struct.pack("<2f", *ROW)


@dataclass
class Contender:
    """A running server and how to ask it."""

    name: str
    process: subprocess.Popen[bytes]
    url: str
    binary: bool = False

    def request(self) -> tuple[bytes, dict[str, str]]:
        """Body and headers of the request that is measured."""
        if not self.binary:
            return JSON_BODY, {"Content-Type": "application/json"}
        return BINARY_BODY, {
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": str(len(BINARY_HEADER)),
        }

    def answer(self) -> float:
        """Ask once; the value that came back."""
        body, headers = self.request()
        with urllib.request.urlopen(urllib.request.Request(self.url, body, headers), timeout=10) as response:
            content = response.read()
            length = response.headers.get("Inference-Header-Content-Length")
        if length is not None:
            return struct.unpack("<f", content[int(length) :])[0]
        return float(json.loads(content)["outputs"][0]["data"][0])

    def processes(self) -> list[psutil.Process]:
        """All processes of the server."""
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]


def start(name: str, command: list[str], port_file: Path, path: str, **environment: str) -> Contender:
    """Start a server that writes its port to a file."""
    process = subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not port_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{name} did not start: {' '.join(command)}")
        time.sleep(0.05)
    port = json.loads(port_file.read_text(encoding="utf-8"))["http"]
    return Contender(name, process, f"http://127.0.0.1:{port}{path}")


def start_mosec(model: Path) -> Contender:
    """Start mosec; it takes no port 0, so a free one is found first."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(HERE / "mosec_server.py"), "--address", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--log-level", "error"],
        env={**os.environ, "BENCH_MODEL": str(model)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    contender = Contender("mosec", process, f"http://127.0.0.1:{port}/inference")
    deadline = time.monotonic() + 60
    while True:
        try:
            contender.answer()
        except OSError as exc:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("mosec did not start") from exc
            time.sleep(0.2)
        else:
            return contender


def measure(
    contender: Contender, scripts: dict[bool, Path], seconds: int, connections: int
) -> dict[str, float]:
    """One run of wrk."""
    before = sum(sum(p.cpu_times()[:2]) for p in contender.processes())
    command = [
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{seconds}s",
        "--latency",
        "-s",
        str(scripts[contender.binary]),
    ]
    text = subprocess.run([*command, contender.url], capture_output=True, text=True, check=True).stdout
    spent = sum(sum(p.cpu_times()[:2]) for p in contender.processes()) - before
    if "Non-2xx" in text or "Socket errors" in text:
        raise SystemExit(f"{contender.name} answered with errors:\n{text}")
    requests = int(found(r"(\d+) requests in", text))
    return {
        "requests_per_second": float(found(r"Requests/sec:\s+([\d.]+)", text)),
        "p50_ms": milliseconds(found(r"(?m)^\s+50%\s+(\S+)$", text)),
        "p99_ms": milliseconds(found(r"(?m)^\s+99%\s+(\S+)$", text)),
        "cpu_us_per_request": spent / requests * 1e6,
        "rss_mib": sum(p.memory_info().rss for p in contender.processes()) / 2**20,
    }


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise SystemExit(f"wrk's output has no {pattern!r}:\n{text}")
    return match.group(1)


def milliseconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()  # type: ignore[union-attr]
    return float(number) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[unit]


def write_script(path: Path, body: bytes, headers: dict[str, str]) -> Path:
    escaped = "".join(f"\\{byte:03d}" for byte in body)
    lines = ['wrk.method = "POST"', f'wrk.body = "{escaped}"']
    lines += [f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items()]
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    return path


def start_all(folder: Path, with_mosec: bool) -> list[Contender]:
    """Start every server."""
    repository = folder / "repository"
    model = write_repository(repository)
    ports = folder / "server.json"
    server = start(
        "server, JSON",
        [
            *(sys.executable, "-m", "repobuild_serve", str(repository), "--port-file", str(ports)),
            *("--http-port", "0", "--no-allow-metrics"),
        ],
        ports,
        "/v2/models/risk_model/infer",
    )
    contenders = [server, Contender("server, binary", server.process, server.url, binary=True)]
    if with_mosec:
        contenders.append(start_mosec(model))
    ports = folder / "bare.json"
    contenders.append(
        start("bare loop", [sys.executable, str(HERE / "bare_loop.py"), str(model), str(ports)], ports, "/")
    )
    return contenders


def expected(model: Path) -> float:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    import numpy as np

    return float(session.run(["OUTPUT0"], {"INPUT0": np.array([ROW], dtype=np.float32)})[0][0, 0])


def report(results: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Medians over the rounds, and ratios to the peers."""
    table = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in results.items()
    }
    for row in table.values():
        for peer in ("mosec", "bare loop"):
            if peer in table:
                row[f"to_{peer.split()[0]}"] = row["requests_per_second"] / table[peer]["requests_per_second"]
    return table


def show(table: dict[str, dict[str, float]]) -> None:
    titles = ("req/s", "p50 ms", "p99 ms", "x mosec", "x bare", "CPU us", "RSS MiB")
    print(" " * 16 + "".join(f"{title:>9}" for title in titles))
    for name, row in table.items():
        print(
            f"{name:16}{row['requests_per_second']:9.0f}{row['p50_ms']:9.2f}{row['p99_ms']:9.2f}"
            f"{row.get('to_mosec', float('nan')):9.2f}{row.get('to_bare', float('nan')):9.2f}"
            f"{row['cpu_us_per_request']:9.1f}{row['rss_mib']:9.0f}"
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Throughput of the bundled server against peers.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="length of one measurement")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--no-mosec", action="store_true", help="leave mosec out")
    parser.add_argument("--output", type=Path, default=RESULTS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed; on Debian: apt-get install wrk")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        contenders = start_all(folder, not options.no_mosec)
        try:
            right = expected(folder / "repository" / "risk_model" / "1" / "model.onnx")
            scripts = {}
            for contender in contenders:
                answer = contender.answer()
                if abs(answer - right) > 1e-6:
                    raise SystemExit(f"{contender.name} answered {answer}, not {right}; nothing was measured")
                scripts[contender.binary] = write_script(
                    folder / f"{contender.binary}.lua", *contender.request()
                )
            for contender in contenders:
                measure(contender, scripts, 1, options.connections)
            results: dict[str, list[dict[str, float]]] = {contender.name: [] for contender in contenders}
            for number in range(options.rounds):
                for contender in contenders:
                    run = measure(contender, scripts, options.seconds, options.connections)
                    results[contender.name].append(run)
                print(f"round {number + 1} of {options.rounds} done", file=sys.stderr)
        finally:
            stop(contenders)
    table = report(results)
    show(table)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(document(options, table, results), indent=1), encoding="utf-8")


def stop(contenders: list[Contender]) -> None:
    processes = {contender.process.pid: contender.process for contender in contenders}
    for process in processes.values():
        process.send_signal(signal.SIGTERM)
    for process in processes.values():
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def document(options: argparse.Namespace, table: Any, results: Any) -> dict[str, Any]:
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {"cores": os.cpu_count(), "architecture": platform.machine()},
        "python": platform.python_version(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "connections": options.connections,
        "medians": table,
        "runs": results,
    }


if __name__ == "__main__":
    main()
