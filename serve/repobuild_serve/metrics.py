"""Prometheus text of the counters, with Triton's names (Triton contract, metrics).

Written by hand because client libraries append ``_total`` to counters, which Triton's names do not have.
"""

from __future__ import annotations

from collections.abc import Callable

from repobuild_serve.core.custom_metrics import CustomMetrics
from repobuild_serve.core.model import ModelVersion
from repobuild_serve.http.exchange import Exchange, KnownHead
from repobuild_serve.http.limits import Limits
from repobuild_serve.http.parser import Request
from repobuild_serve.http.replies import PLAIN, error_reply, reply
from repobuild_serve.lifecycle import Models

_CONTENT_TYPE = b"text/plain; charset=utf-8"
_CACHED = "(includes cached requests)"
_UNCACHED = "(does not include cached requests)"

_Value = Callable[[ModelVersion], int | float]
_PER_MODEL: tuple[tuple[str, str, str, _Value], ...] = (
    (
        "nv_inference_request_success",
        "counter",
        "Number of successful inference requests, all batch sizes",
        lambda v: v.statistics.success.count,
    ),
    (
        "nv_inference_count",
        "counter",
        f"Number of inferences performed {_UNCACHED}",
        lambda v: v.statistics.inference_count,
    ),
    (
        "nv_inference_exec_count",
        "counter",
        f"Number of model executions performed {_UNCACHED}",
        lambda v: v.statistics.execution_count,
    ),
    (
        "nv_inference_request_duration_us",
        "counter",
        f"Cumulative inference request duration in microseconds {_CACHED}",
        lambda v: v.statistics.success.ns // 1000,
    ),
    (
        "nv_inference_queue_duration_us",
        "counter",
        f"Cumulative inference queuing duration in microseconds {_CACHED}",
        lambda v: v.statistics.queue.ns // 1000,
    ),
    (
        "nv_inference_compute_input_duration_us",
        "counter",
        f"Cumulative compute input duration in microseconds {_UNCACHED}",
        lambda v: v.statistics.compute_input.ns // 1000,
    ),
    (
        "nv_inference_compute_infer_duration_us",
        "counter",
        f"Cumulative compute inference duration in microseconds {_UNCACHED}",
        lambda v: v.statistics.compute_infer.ns // 1000,
    ),
    (
        "nv_inference_compute_output_duration_us",
        "counter",
        f"Cumulative inference compute output duration in microseconds {_UNCACHED}",
        lambda v: v.statistics.compute_output.ns // 1000,
    ),
    (
        "nv_inference_pending_request_count",
        "gauge",
        "Instantaneous number of pending requests awaiting execution per-model.",
        lambda v: v.pending(),
    ),
    ("nv_model_load_duration_secs", "gauge", "Model load time in seconds", lambda v: v.load_seconds),
)
_FAILURE = ("nv_inference_request_failure", "counter", "Number of failed inference requests, all batch sizes")
_PROCESSOR = (
    ("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]"),
    ("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes"),
    ("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes"),
)


def metrics_text(models: Models, custom: CustomMetrics) -> str:
    """All metrics in Prometheus text format 0.0.4."""
    versions = list(models.ready_versions())
    lines: list[str] = []
    for name, kind, meaning, value in _PER_MODEL:
        lines += _heading(name, kind, meaning)
        lines += [f"{name}{_labels(version)} {value(version)}" for version in versions]
    name, kind, meaning = _FAILURE
    lines += _heading(name, kind, meaning)
    for version in versions:
        for reason, count in sorted(version.statistics.failures.items()):
            lines.append(f"{name}{_labels(version, reason=reason)} {count}")
    for (name, meaning), measured in zip(_PROCESSOR, _processor_values(), strict=False):
        lines += [*_heading(name, "gauge", meaning), f"{name} {measured}"]
    lines += custom.lines()
    return "\n".join(lines) + "\n"


def _heading(name: str, kind: str, meaning: str) -> list[str]:
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]


def _labels(version: ModelVersion, **more: str) -> str:
    labels = {"model": version.settings.name, "version": str(version.version), **more}
    labels |= {f"_{key}": value for key, value in version.settings.metric_tags.items()}
    listed = ",".join(f'{key}="{_escaped(value)}"' for key, value in sorted(labels.items()))
    return "{" + listed + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _processor_values() -> list[float | int]:
    try:
        import psutil
    except ImportError:
        return []
    memory = psutil.virtual_memory()
    return [psutil.cpu_percent(interval=None) / 100, memory.total, memory.total - memory.available]


class MetricsRoutes:
    """The application of the metrics port."""

    def __init__(self, models: Models, limits: Limits, custom: CustomMetrics) -> None:
        self._models = models
        self._custom = custom
        self._limits = limits

    def respond(self, request: Request, exchange: Exchange) -> bytes | None:
        """See ``Application.respond``."""
        if request.method != b"GET":
            return error_reply(405, "Method Not Allowed", PLAIN)
        if request.target.partition(b"?")[0] != b"/metrics":
            return reply(200)
        return reply(200, metrics_text(self._models, self._custom).encode(), _CONTENT_TYPE)

    def known_head(self, request: Request) -> KnownHead | None:
        """See ``Application.known_head``: nothing is remembered."""
        return None

    def body_limit(self, target: bytes, headers: dict[bytes, bytes]) -> tuple[int, str]:
        """See ``Application.body_limit``."""
        return self._limits.header_size, "request body is too large"
