"""What the server costs when little happens: latency at a short queue delay, start, memory, many models."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import psutil
from harness import Contender, interleaved, measure, medians, need_wrk, options, save, serve, show, stop
from model import write_repository
from risk_model import JSON_BODY, JSON_HEADERS

MODELS = 200
REQUESTS = 100_000


def contender(name: str, process: subprocess.Popen[bytes], port: int) -> Contender:
    url = f"http://127.0.0.1:{port}/v2/models/risk_model/infer"
    return Contender(name, process, url, JSON_BODY, JSON_HEADERS)


def starts(folder: Path, times: int) -> list[float]:
    """Seconds from the start of the process to the ports being open, with one model."""
    seconds = []
    for number in range(times):
        began = time.perf_counter()
        process, _ = serve(folder / "repository", folder / f"start{number}.json")
        seconds.append(time.perf_counter() - began)
        stop([process])
    return seconds


def short_delay(folder: Path, rounds: int, seconds: int) -> dict[str, float]:
    """One connection against a queue delay of 500 us."""
    repository = folder / "short"
    shutil.copytree(folder / "repository", repository)
    config = repository / "risk_model" / "config.pbtxt"
    config.write_text(config.read_text(encoding="utf-8").replace("5000", "500"), encoding="utf-8")
    process, port = serve(repository, folder / "short.json")
    try:
        asked = contender("500 us", process, port)
        measure(asked, folder, 1, 1)
        return medians(interleaved({"500 us": partial(measure, asked, folder, seconds, 1)}, rounds))["500 us"]
    finally:
        stop([process])


def memory(folder: Path) -> dict[str, float]:
    """Resident memory before and after many requests."""
    process, port = serve(folder / "repository", folder / "memory.json")
    try:
        asked = contender("memory", process, port)
        asked.ask()
        started = asked.rss_mib()
        marks: list[float] = []
        done = 0.0
        while done < REQUESTS:
            run = measure(asked, folder, 1, 64)
            done += run["requests_per_second"]
            marks.append(run["rss_mib"])
        return {
            "started_mib": started,
            "after_first_second_mib": marks[0],
            "after_mib": marks[-1],
            "requests": done,
        }
    finally:
        stop([process])


def many_models(folder: Path) -> dict[str, float]:
    """Many models in one server: seconds to ready, memory, and that each of them answers."""
    repository = folder / "many"
    for number in range(MODELS):
        shutil.copytree(folder / "repository" / "risk_model", repository / f"m{number}")
        config = repository / f"m{number}" / "config.pbtxt"
        config.write_text(
            config.read_text(encoding="utf-8").replace('"risk_model"', f'"m{number}"'), encoding="utf-8"
        )
    began = time.perf_counter()
    process, port = serve(repository, folder / "many.json")
    seconds = time.perf_counter() - began
    try:
        for number in range(MODELS):
            url = f"http://127.0.0.1:{port}/v2/models/m{number}/infer"
            content, _ = Contender("one", process, url, JSON_BODY, JSON_HEADERS).ask()
            assert json.loads(content)["model_name"] == f"m{number}"
        found = psutil.Process(process.pid)
        return {
            "models": MODELS,
            "start_seconds": seconds,
            "rss_mib": found.memory_info().rss / 2**20,
            "threads": found.num_threads(),
        }
    finally:
        stop([process])


def main() -> None:
    given = options("Latency, start, memory and many models.", seconds=3).parse_args()
    need_wrk()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_repository(folder / "repository")
        table = {
            "start, s": {"median": statistics.median(starts(folder, given.rounds))},
            "500 us, 1 connection": short_delay(folder, given.rounds, given.seconds),
            "memory": memory(folder),
            "many models": many_models(folder),
        }
    for row, values in table.items():
        show({row: values})
    save("footprint", **table)


if __name__ == "__main__":
    main()
