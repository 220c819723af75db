"""What the command line settles for one run of the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from repobuild_serve.gpus import MIN_COMPUTE_CAPABILITY
from repobuild_serve.http.front import FrontOptions
from repobuild_serve.http.limits import Limits
from repobuild_serve.lifecycle import Mode
from repobuild_serve.profile import CURRENT, Profile


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line settles.

    Attributes:
        repository: The model repository.
        more_repositories: Further ones.
        http_address: Address of the HTTP port.
        http_port: HTTP port; 0 takes a free one.
        grpc_port: Accepted; nothing listens there in this release.
        allow_metrics: Whether to open the metrics port.
        metrics_address: Address of the metrics port.
        metrics_port: Metrics port; 0 takes a free one.
        server_id: Name in the server metadata.
        exit_timeout: Seconds that requests in flight may take after a signal.
        strict_readiness: Whether one failed model makes the server not ready.
        exit_on_error: Whether one failed model ends the start.
        auto_complete: Whether missing parts of a config are taken from the model.
        mode: When models come and go.
        poll_seconds: Time between two looks at the repository in poll mode.
        startup_models: Models loaded at the start in explicit mode; ``*`` alone stands for all.
        config_name: Config to prefer in the ``configs`` folder of models; empty for none.
        load_threads: Versions loaded at a time.
        load_retries: How often a load that failed is tried again at once.
        port_file: Where to write the ports once they listen.
        stop_with_stdin: Whether the end of standard input stops the server, as SIGTERM does.
        limits: Bounds of the front end.
        profile: Which release's answers are given where releases differ.
        front: How the HTTP port is set up.
        backend_options: Value by key, by backend name; the empty name holds those for every backend.
        min_compute_capability: What a GPU must have to be used.
    """

    repository: Path
    more_repositories: tuple[Path, ...] = ()
    http_address: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int = 8001
    allow_metrics: bool = True
    metrics_address: str = "127.0.0.1"
    metrics_port: int = 8002
    server_id: str = "triton"
    exit_timeout: int = 30
    strict_readiness: bool = True
    exit_on_error: bool = True
    auto_complete: bool = True
    mode: Mode = Mode.NONE
    poll_seconds: float = 15
    startup_models: tuple[str, ...] = ()
    config_name: str = ""
    load_threads: int = 4
    load_retries: int = 0
    port_file: Path | None = None
    stop_with_stdin: bool = False
    limits: Limits = field(default_factory=Limits)
    profile: Profile = CURRENT
    front: FrontOptions = field(default_factory=FrontOptions)
    backend_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    min_compute_capability: float = MIN_COMPUTE_CAPABILITY
