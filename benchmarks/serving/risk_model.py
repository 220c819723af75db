"""Throughput on a tiny model: the bundled server against mosec and a bare loop, side by side.

``python benchmarks/serving/risk_model.py --help`` lists the options.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
from harness import (
    Contender,
    binary_headers,
    interleaved,
    measure,
    medians,
    need_wrk,
    options,
    save,
    serve,
    show,
    start,
    stop,
)
from model import ROW, write_repository

HERE = Path(__file__).resolve().parent
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
JSON_HEADERS = {"Content-Type": "application/json"}


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
    contender = Contender("mosec", process, f"http://127.0.0.1:{port}/inference", JSON_BODY, JSON_HEADERS)
    deadline = time.monotonic() + 60
    while True:
        try:
            contender.ask()
        except OSError as exc:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("mosec did not start") from exc
            time.sleep(0.2)
        else:
            return contender


def start_all(folder: Path, model: Path, with_mosec: bool) -> list[Contender]:
    """Start every server."""
    process, port = serve(folder / "repository", folder / "server.json")
    url = f"http://127.0.0.1:{port}/v2/models/risk_model/infer"
    contenders = [
        Contender("server, JSON", process, url, JSON_BODY, JSON_HEADERS),
        Contender("server, binary", process, url, BINARY_BODY, binary_headers(BINARY_HEADER)),
    ]
    if with_mosec:
        contenders.append(start_mosec(model))
    command = [sys.executable, str(HERE / "bare_loop.py"), str(model), str(folder / "bare.json")]
    process, port = start(command, folder / "bare.json")
    return [
        *contenders,
        Contender("bare loop", process, f"http://127.0.0.1:{port}/", JSON_BODY, JSON_HEADERS),
    ]


def answer(contender: Contender) -> float:
    """The value that comes back."""
    content, headers = contender.ask()
    length = headers.get("inference-header-content-length")
    if length is not None:
        return struct.unpack("<f", content[int(length) :])[0]
    return float(json.loads(content)["outputs"][0]["data"][0])


def expected(model: Path) -> float:
    """The value that is right."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return float(session.run(["OUTPUT0"], {"INPUT0": np.array([ROW], dtype=np.float32)})[0][0, 0])


def main() -> None:
    parser = options("Throughput of the bundled server on a tiny model.")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--no-mosec", action="store_true", help="leave mosec out")
    given = parser.parse_args()
    need_wrk()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_repository(folder / "repository")
        contenders = start_all(folder, model, not given.no_mosec)
        try:
            right = expected(model)
            for contender in contenders:
                if abs(answer(contender) - right) > 1e-6:
                    raise SystemExit(f"{contender.name} answers wrongly; nothing was measured")
                measure(contender, folder, 1, given.connections)
            runs = interleaved(
                {
                    contender.name: partial(measure, contender, folder, given.seconds, given.connections)
                    for contender in contenders
                },
                given.rounds,
            )
        finally:
            stop(list({contender.process.pid: contender.process for contender in contenders}.values()))
    table = medians(runs, "mosec", "bare loop")
    show(table)
    save("risk_model", connections=given.connections, medians=table, runs=runs)


if __name__ == "__main__":
    main()
