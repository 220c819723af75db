"""The latency budget, and fields that are emitted though verification leaves them out."""

import json

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from repobuild.triton import parse_config

ROWS = np.random.default_rng(0).normal(size=(40, 2))


@pytest.fixture
def build(project, repobuild_cli, tmp_path):
    """Converts with a serving section; gives the outcome and the emitted configuration."""

    def run(serving, **recipe):
        home = project(
            LinearRegression().fit(ROWS, ROWS[:, 0]), ROWS, serving={"max_batch_size": 8, **serving}, **recipe
        )
        outcome = repobuild_cli("convert", home, "-r", tmp_path / "r", "--trust", "pickle")
        path = tmp_path / "r" / "model" / "config.pbtxt"
        return outcome, parse_config(path.read_text(), path) if path.exists() else None

    return run


def test_cache_priorities_and_accelerators_are_emitted_and_told(build):
    outcome, config = build(
        {
            "response_cache": {"enable": True},
            "dynamic_batching": {"priority_levels": 2, "default_priority_level": 1},
            "optimization": {"execution_accelerators": {"gpu_execution_accelerator": [{"name": "tensorrt"}]}},
        }
    )
    assert outcome.status == 0, outcome.err
    for words in ("response_cache was left out", "priority_levels", "execution_accelerators were left out"):
        assert words in outcome.err
    assert config.response_cache.enable
    assert config.dynamic_batching.priority_levels == 2
    assert config.optimization.execution_accelerators.gpu_execution_accelerator[0].name == "tensorrt"


def test_the_latency_budget_is_measured_through_the_server(build, tmp_path):
    outcome, _ = build({}, budget={"p99_ms": 10_000})
    assert outcome.status == 0, outcome.err
    assert "200 lone requests within the budget" in outcome.out
    report = json.loads((tmp_path / "r.repobuild/model/1/report.json").read_text())
    assert report["verification"][-1]["name"] == "budget: p99_ms"


def test_a_queue_delay_beyond_the_latency_budget_fails(build, tmp_path):
    outcome, config = build(
        {"dynamic_batching": {"max_queue_delay_microseconds": 20_000}}, budget={"p99_ms": 5}
    )
    assert (outcome.status, "budget: p99_ms" in outcome.err) == (8, True), outcome.err
    assert config is None


def test_a_delay_that_verification_shortens_counts_whole(build):
    outcome, _ = build(
        {"dynamic_batching": {"max_queue_delay_microseconds": 60_000_000}}, budget={"p99_ms": 30_000}
    )
    assert (outcome.status, "budget: p99_ms" in outcome.err) == (8, True), outcome.err
