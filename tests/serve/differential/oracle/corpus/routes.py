"""Health, metadata, configuration, index, settings, and what is no route."""

from __future__ import annotations

from oracle.corpus.case import Case, get, named, post
from oracle.main_models import main_models
from oracle.wire import Request

NOWHERE = (
    "/", "/v2/", "/v2//health/live", "/V2/health/live", "/v2/health", "/v2/health/live/", "/v1/health/live",
    "/v2/models", "/v2/models/", "/v2/models/echo/", "/v2/models/echo/versions", "/v2/models/echo/versions/",
    "/v2/models/echo/versions/x", "/v2/models/echo/versions/-1", "/v2/models/echo/versions/1.0/ready",
    "/v2/models/echo/versions/1/", "/v2/models/echo/versions/1/config/", "/v2/models/echo/readiness",
    "/v2/models/echo/versions/1/trace/setting", "/v2/repository", "/v2/repository/", "/v2/nothing", "/metrics",
    "/v2/models/echo/infer/extra", "/v2/models/echo/versions/1/infer/", "/v2/trace", "/v2/trace/setting/",
    "/v2/logging/", "/v2/models//ready", "/favicon.ico",
)  # fmt: skip
OF_A_MODEL = ("", "/ready", "/config", "/stats")


def cases() -> list[Case]:
    """All of them."""
    return [*health(), *metadata(), *not_routes(), *methods(), *settings(), *shared_memory()]


def health() -> list[Case]:
    """Live, ready, the server's own metadata."""
    return named(
        "route",
        [
            ("live", get("/v2/health/live")),
            ("ready", get("/v2/health/ready")),
            ("server", get("/v2")),
            ("query", get("/v2/health/live?verbose=1")),
            ("server-query", get("/v2?x")),
            ("model-query", get("/v2/models/echo/ready?x=1")),
            ("index", post("/v2/repository/index")),
            ("index-empty-object", post("/v2/repository/index", {})),
            ("index-ready", post("/v2/repository/index", {"ready": True})),
            ("index-not-ready", post("/v2/repository/index", {"ready": False})),
            ("index-wrong-type", post("/v2/repository/index", {"ready": 1})),
            ("index-wrong-text", post("/v2/repository/index", {"ready": "yes"})),
            ("index-syntax", post("/v2/repository/index", b"{")),
            ("index-array", post("/v2/repository/index", [])),
            ("index-named", post("/v2/repository/other/index", {})),
            ("index-unknown-key", post("/v2/repository/index", {"other": 1})),
            ("load-refused", post("/v2/repository/models/echo/load", {})),
            ("load-refused-unknown", post("/v2/repository/models/nope/load", {})),
            ("load-refused-bad-body", post("/v2/repository/models/echo/load", b"{")),
            ("load-refused-parameter", post("/v2/repository/models/echo/load", {"parameters": {"x": "1"}})),
            ("unload-refused", post("/v2/repository/models/echo/unload", {})),
            ("unload-refused-unknown", post("/v2/repository/models/nope/unload", {})),
            ("load-named", post("/v2/repository/other/models/echo/load", {})),
            ("unload-named", post("/v2/repository/other/models/echo/unload", {})),
        ],
    )


def metadata() -> list[Case]:
    """Of each model, and of what does not exist."""
    found = []
    for model in main_models():
        paths = ["", "/config", "/ready"]
        found += [
            (f"{model.name}{path.replace('/', '-')}", get(f"/v2/models/{model.name}{path}")) for path in paths
        ]
    for path in OF_A_MODEL:
        label = path[1:] or "metadata"
        found += [
            (f"version-{label}", get(f"/v2/models/versions/versions/1{path}")),
            (f"version-zeros-{label}", get(f"/v2/models/versions/versions/01{path}")),
            (f"version-unknown-{label}", get(f"/v2/models/versions/versions/2{path}")),
            (f"version-zero-{label}", get(f"/v2/models/versions/versions/0{path}")),
            (f"version-large-{label}", get(f"/v2/models/versions/versions/99999999999999999999999{path}")),
            (f"unknown-{label}", get(f"/v2/models/nope{path}")),
            (f"unknown-version-{label}", get(f"/v2/models/nope/versions/1{path}")),
            (f"percent-{label}", get(f"/v2/models/ech%6F{path}")),
        ]
    found += [("stats-versions", get("/v2/models/versions/stats"))]
    return named("metadata", found)


def not_routes() -> list[Case]:
    """404."""
    return [
        Case(f"nowhere-{method}-{path.replace('/', '_')}", Request(method, path))
        for path in NOWHERE
        for method in ("GET", "POST")
    ]


def methods() -> list[Case]:
    """405, by method."""
    routes = {
        "live": "/v2/health/live", "ready": "/v2/health/ready", "server": "/v2", "model": "/v2/models/echo",
        "model-ready": "/v2/models/echo/ready", "config": "/v2/models/echo/config",
        "stats": "/v2/models/echo/stats", "all-stats": "/v2/models/stats", "infer": "/v2/models/echo/infer",
        "generate": "/v2/models/echo/generate", "stream": "/v2/models/echo/generate_stream",
        "index": "/v2/repository/index", "load": "/v2/repository/models/echo/load",
        "unload": "/v2/repository/models/echo/unload", "logging": "/v2/logging", "trace": "/v2/trace/setting",
        "unknown-infer": "/v2/models/nope/infer", "unknown-model": "/v2/models/nope",
        "shm-status": "/v2/systemsharedmemory/status", "shm-register": "/v2/systemsharedmemory/region/r/register",
    }  # fmt: skip
    posted = {
        "infer", "generate", "stream", "index", "load", "unload", "unknown-infer", "shm-register", "logging", "trace",
    }  # fmt: skip
    found = []
    for label, path in routes.items():
        wrong = ["PUT", "DELETE", "HEAD", "OPTIONS"] + (["GET"] if label in posted else ["POST"])
        if label in {"logging", "trace"}:
            wrong.remove("GET")
        found += [(f"{label}-{method}", Request(method, path)) for method in wrong]
    found += [
        ("metrics-POST", Request("POST", "metrics:/metrics")),
        ("metrics-other", Request("GET", "metrics:/other")),
        ("metrics-root", Request("GET", "metrics:/")),
    ]
    return named("method", found)


def settings() -> list[Case]:
    """Logging and trace settings, none of which changes anything."""
    log, trace, model = "/v2/logging", "/v2/trace/setting", "/v2/models/echo/trace/setting"
    return named(
        "settings",
        [
            ("logging", get(log)),
            ("logging-nothing", post(log, {})),
            ("logging-empty-body", post(log)),
            ("logging-unknown-key", post(log, {"zz": 1})),
            ("logging-same", post(log, {"log_info": True})),
            ("logging-file", post(log, {"log_file": "x.log"})),
            ("logging-format", post(log, {"log_format": "zz"})),
            ("logging-format-type", post(log, {"log_format": 1})),
            ("logging-info-type", post(log, {"log_info": 1})),
            ("logging-warning-type", post(log, {"log_warning": "x"})),
            ("logging-verbose-type", post(log, {"log_verbose_level": "1"})),
            ("logging-verbose-negative", post(log, {"log_verbose_level": -1})),
            ("logging-verbose-bool", post(log, {"log_verbose_level": True})),
            ("logging-syntax", post(log, b"{")),
            ("logging-array", post(log, b"[]")),
            ("trace", get(trace)),
            ("trace-model", get(model)),
            ("trace-unknown-model", get("/v2/models/nope/trace/setting")),
            ("trace-unknown-model-post", post("/v2/models/nope/trace/setting", {})),
            ("trace-nothing", post(trace, {})),
            ("trace-empty-body", post(trace)),
            ("trace-rate-text", post(trace, {"trace_rate": "x"})),
            ("trace-rate-integer", post(trace, {"trace_rate": 10})),
            ("trace-count", post(trace, {"trace_count": "-5"})),
            ("trace-level-two", post(trace, {"trace_level": ["OFF", "TIMESTAMPS"]})),
            ("trace-level-unknown", post(trace, {"trace_level": ["LOUD"]})),
            ("trace-level-text", post(trace, {"trace_level": "OFF"})),
            ("trace-file", post(trace, {"trace_file": "x"})),
            ("trace-no-file", post(trace, {"trace_level": ["TIMESTAMPS"]})),
            ("trace-mode", post(trace, {"trace_mode": "opentelemetry"})),
            ("trace-log-frequency", post(trace, {"log_frequency": "x"})),
            ("trace-unknown-key", post(trace, {"zz": "1"})),
        ],
    )


def shared_memory() -> list[Case]:
    """Regions that do not exist."""
    system, cuda = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
    return named(
        "shm",
        [
            ("status", get(f"{system}/status")),
            ("status-unknown", get(f"{system}/region/r0/status")),
            (
                "register-missing",
                post(f"{system}/region/r0/register", {"key": "/no_such_object", "byte_size": 8}),
            ),
            ("register-no-key", post(f"{system}/region/r0/register", {"byte_size": 8})),
            ("register-no-size", post(f"{system}/region/r0/register", {"key": "/k"})),
            ("register-no-name", post(f"{system}/register", {"key": "/k", "byte_size": 8})),
            ("register-key-type", post(f"{system}/region/r0/register", {"key": 1, "byte_size": 8})),
            ("register-size-type", post(f"{system}/region/r0/register", {"key": "/k", "byte_size": "8"})),
            ("register-empty", post(f"{system}/region/r0/register")),
            ("unregister", post(f"{system}/unregister")),
            ("unregister-unknown", post(f"{system}/region/r0/unregister")),
            ("cuda-status", get(f"{cuda}/status")),
            ("cuda-status-unknown", get(f"{cuda}/region/c0/status")),
            ("cuda-unregister", post(f"{cuda}/unregister")),
            ("cuda-no-handle", post(f"{cuda}/region/c0/register", {"device_id": 0, "byte_size": 8})),
            (
                "cuda-short-handle",
                post(
                    f"{cuda}/region/c0/register",
                    {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 8},
                ),
            ),
        ],
    )
