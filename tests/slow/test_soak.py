"""The short form of ``make soak``: everything happens, and nothing goes wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EVERY_DEED = {
    "broken configs",
    "broken versions",
    "clients that hung up",
    "clients that read nothing",
    "configs reloaded",
    "instances changed in place",
    "loads without a change",
    "looks",
    "malformed requests",
    "python instances killed",
    "stalled requests ended by the server",
    "streams left in the middle",
    "unloads",
    "versions swapped",
}


def soak(report, *options):
    command = [sys.executable, "-m", "tests.soak", "--looks", "0", "--report", report, *options]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(Path(report).read_text())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_quarters_of_a_minute_of_everything(tmp_path):
    document = soak(tmp_path / "soak.json", "--minutes", "0.7", "--warm-up", "8", "--pace", "0.4")
    assert {*document["done"]} >= EVERY_DEED
    assert all(row["right"] for row in document["models"].values())
    reasons = {why for row in document["models"].values() for why in row["refused"]}
    assert reasons >= {"queue full", "queue time-out", "unloaded"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_polling(tmp_path):
    document = soak(
        tmp_path / "soak.json", "--minutes", "0.25", "--warm-up", "4", "--mode", "poll", "--pace", "0.4"
    )
    assert document["done"]["versions swapped"] >= 2
    assert all(row["right"] for row in document["models"].values())
