"""From what the command line says to the options of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repobuild_serve.backends.options import read_backend_options
from repobuild_serve.errors import StartError
from repobuild_serve.http.access import Access, read_restrictions, read_token
from repobuild_serve.http.forwarding import HeaderForwarding
from repobuild_serve.http.front import FrontOptions
from repobuild_serve.http.limits import Limits
from repobuild_serve.http.tls import server_context
from repobuild_serve.lifecycle import Mode
from repobuild_serve.logs import LogControl
from repobuild_serve.options import Options
from repobuild_serve.profile import PROFILES


def options(given: dict[str, Any], logs: LogControl) -> Options:
    """The options of a run.

    Args:
        given: Value by parameter name, as click has parsed them, without those of the log; it is used up.
        logs: The log.

    Raises:
        StartError: A value is not as it must be, or a file that it names cannot be read.
    """
    bounds = {
        "input_size": given.pop("http_max_input_size"),
        "binary_size": given.pop("http_max_binary_size"),
        "header_size": given.pop("http_max_header_size"),
        "held_size": given.pop("http_max_held_size"),
        "pipelined": given.pop("http_max_pipelined"),
        "connections": given.pop("max_connections"),
        "queued_requests": given.pop("max_queued_requests"),
        "stream_held": given.pop("http_max_stream_held"),
        "read_seconds": given.pop("http_read_timeout_secs"),
        "write_seconds": given.pop("http_write_timeout_secs"),
        "idle_seconds": given.pop("http_idle_timeout_secs"),
    }
    profile = PROFILES[given.pop("compat")]
    repositories: list[Path] = [*given.pop("more_repositories")]
    repository: Path | None = given.pop("repository")
    if repository is not None:
        repositories.insert(0, repository)
    given.pop("model_namespacing")
    return Options(
        repository=repositories[0],
        profile=profile,
        front=_front(given, logs, legacy=profile.legacy),
        more_repositories=tuple(repositories[1:]),
        mode=Mode(given.pop("model_control_mode").lower()),
        poll_seconds=given.pop("repository_poll_secs"),
        startup_models=tuple(dict.fromkeys(given.pop("load_model"))),
        config_name=given.pop("model_config_name"),
        backend_options=read_backend_options(given.pop("backend_config")),
        load_retries=given.pop("model_load_retry_count"),
        limits=Limits(**{name: value for name, value in bounds.items() if value is not None}),
        exit_timeout=given.pop("exit_timeout_secs"),
        auto_complete=not given.pop("disable_auto_complete_config"),
        load_threads=given.pop("model_load_thread_count"),
        metrics_address=given.pop("metrics_address") or given["http_address"],
        **given,
    )


def _front(given: dict[str, Any], logs: LogControl, *, legacy: bool) -> FrontOptions:

    if given.pop("allow_client_shm"):
        raise StartError(
            "client-shm-unsupported",
            "this server cannot take shared memory from clients",
            hint="leave --allow-client-shm out; clients can send tensors as binary data",
            exit_code=2,
        )
    token_file = given.pop("http_bearer_token_file")
    access = Access(
        read_restrictions(given.pop("http_restricted_api")),
        read_token(token_file) if token_file is not None else b"",
        given.pop("http_bearer_token_health"),
    )
    forwarding = HeaderForwarding(given.pop("http_header_forward_pattern"), legacy=legacy)
    tls = server_context(given.pop("http_ssl_cert"), given.pop("http_ssl_key"))
    return FrontOptions(access, forwarding, tls, logs)
