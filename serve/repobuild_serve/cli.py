"""The command line: ``python -m repobuild_serve REPOSITORY``."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from repobuild_serve import __version__

_BOOLEAN_OPTIONS = (
    "allow-metrics",
    "exit-on-error",
    "strict-readiness",
    "disable-auto-complete-config",
    "allow-client-shm",
    "log-info",
    "log-warning",
    "log-error",
)
_TRITON_BOOLEAN = re.compile(
    rf"--({'|'.join(_BOOLEAN_OPTIONS)})=(true|false|1|0|on|off|yes|no)", re.IGNORECASE
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server with these arguments; the exit status.

    0 after a graceful stop, 1 if the exit time-out expired, 2 wrong usage, 3 the repository is missing or a
    model failed to load, 7 the environment lacks something (package, port, permission), 70 a bug of this
    program.
    """
    arguments = [_own_spelling(word) for word in (sys.argv[1:] if argv is None else argv)]
    try:
        outcome = command.main(arguments, prog_name="repobuild_serve", standalone_mode=False)
    except click.ClickException as exc:
        exc.show()
        return 2
    except click.exceptions.Abort:
        return 130
    return outcome if isinstance(outcome, int) else 0


def _own_spelling(word: str) -> str:
    """Triton's ``--flag=true`` and ``--flag=false`` as the switches they are here."""
    found = _TRITON_BOOLEAN.fullmatch(word)
    if found is None:
        return word
    name, value = found.groups()
    return f"--{name}" if value.lower() in {"true", "1", "on", "yes"} else f"--no-{name}"


_SIZE = click.IntRange(min=1)
_PORT = click.IntRange(0, 65535)


@click.command(name="repobuild_serve", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="repobuild_serve")
@click.argument("repository", required=False, type=click.Path(path_type=Path))
@click.option(
    "--model-repository",
    "more_repositories",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A model repository, as REPOSITORY; may be repeated.",
)
@click.option(
    "--model-control-mode",
    type=click.Choice(["none", "poll", "explicit"], case_sensitive=False),
    default="none",
    show_default=True,
    help="When models come and go: at the start only, as the repository changes, or on request.",
)
@click.option(
    "--repository-poll-secs",
    type=click.FloatRange(min=0, min_open=True),
    default=15,
    show_default=True,
    help="Time between two looks at the repository in poll mode.",
)
@click.option(
    "--load-model",
    multiple=True,
    help="Model to load at the start in explicit mode; may be repeated, or be '*' for all.",
)
@click.option(
    "--model-config-name",
    default="",
    help="Prefer configs/NAME.pbtxt in a model folder to its config.pbtxt.",
)
@click.option(
    "--model-load-retry-count",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How often to try again at once when a model fails to load.",
)
@click.option(
    "--model-namespacing", type=click.BOOL, default=False, help="Only false: namespaces are not supported."
)
@click.option("--http-address", default="127.0.0.1", show_default=True, help="Address of the HTTP port.")
@click.option(
    "--http-port", type=_PORT, default=8000, show_default=True, help="HTTP port; 0 takes a free one."
)
@click.option(
    "--grpc-port", type=_PORT, default=8001, show_default=True, help="Accepted; gRPC is not served yet."
)
@click.option(
    "--metrics-address", default=None, help="Address of the metrics port.  [default: the HTTP address]"
)
@click.option(
    "--metrics-port", type=_PORT, default=8002, show_default=True, help="Metrics port; 0 takes a free one."
)
@click.option(
    "--allow-metrics/--no-allow-metrics", default=True, show_default=True, help="Open the metrics port."
)
@click.option("--id", "server_id", default="triton", show_default=True, help="Name in the server metadata.")
@click.option(
    "--exit-timeout-secs",
    type=click.IntRange(min=0),
    default=30,
    show_default=True,
    help="How long requests in flight may take after SIGTERM or SIGINT.",
)
@click.option(
    "--strict-readiness/--no-strict-readiness",
    default=True,
    show_default=True,
    help="Whether one model that failed makes the server not ready.",
)
@click.option(
    "--exit-on-error/--no-exit-on-error",
    default=True,
    show_default=True,
    help="Whether one model that fails to load ends the start.",
)
@click.option(
    "--disable-auto-complete-config/--no-disable-auto-complete-config",
    default=False,
    show_default=True,
    help="Take nothing from the models that their config.pbtxt leaves out.",
)
@click.option(
    "--backend-config",
    multiple=True,
    metavar="[BACKEND,]KEY=VALUE",
    help="Setting of a backend, or of every backend; may be given several times.",
)
@click.option(
    "--min-supported-compute-capability",
    "min_compute_capability",
    type=click.FloatRange(min=0),
    default=6.0,
    show_default=True,
    help="What a GPU must have to be used.",
)
@click.option(
    "--model-load-thread-count", type=_SIZE, default=4, show_default=True, help="Models loaded at a time."
)
@click.option(
    "--http-max-input-size", type=_SIZE, help="Largest JSON part or raw body, in bytes.  [default: 64 MiB]"
)
@click.option("--http-max-binary-size", type=_SIZE, help="Largest binary tail, in bytes.  [default: 256 MiB]")
@click.option(
    "--http-max-header-size", type=_SIZE, help="Largest request header, in bytes.  [default: 64 KiB]"
)
@click.option("--http-max-held-size", type=_SIZE, help="Most body bytes held at a time.  [default: 1 GiB]")
@click.option("--http-max-pipelined", type=_SIZE, help="Requests in flight per connection.  [default: 128]")
@click.option("--max-connections", type=_SIZE, help="Connections open at a time.  [default: 4096]")
@click.option("--max-queued-requests", type=_SIZE, help="Unanswered inference requests.  [default: 65536]")
@click.option("--http-read-timeout-secs", type=_SIZE, help="How long a request may stall.  [default: 30]")
@click.option(
    "--http-write-timeout-secs", type=_SIZE, help="How long answers may stay unread.  [default: 60]"
)
@click.option("--http-idle-timeout-secs", type=_SIZE, help="How long a connection may idle.  [default: 600]")
@click.option(
    "--port-file", type=click.Path(path_type=Path), help="Write the ports as JSON once they listen."
)
@click.option(
    "--stop-with-stdin/--no-stop-with-stdin",
    default=False,
    show_default=True,
    help="Stop, as on SIGTERM, when standard input ends: for a parent process that may die.",
)
@click.option(
    "--compat",
    type=click.Choice(["current", "24.10"]),
    default="current",
    show_default=True,
    help="Triton release whose answers are given where releases differ.",
)
@click.option(
    "--http-header-forward-pattern",
    default="",
    metavar="REGEX",
    help="Headers whose name matches become request parameters.  [default: none]",
)
@click.option(
    "--http-restricted-api",
    multiple=True,
    metavar="API,API:HEADER=VALUE",
    help="Routes that ask for a header with this value; may be given several times.",
)
@click.option(
    "--http-bearer-token-file",
    type=click.Path(path_type=Path),
    help="File with a token that every request to the HTTP port must bring.",
)
@click.option(
    "--http-bearer-token-health/--no-http-bearer-token-health",
    default=False,
    show_default=True,
    help="Ask for the token on the routes of server health too.",
)
@click.option(
    "--http-ssl-cert", type=click.Path(path_type=Path), help="PEM certificate; the HTTP port then speaks TLS."
)
@click.option("--http-ssl-key", type=click.Path(path_type=Path), help="PEM key of the certificate.")
@click.option(
    "--http-max-stream-held",
    type=_SIZE,
    help="Bytes of a streamed answer held for a slow reader.  [default: 64 MiB]",
)
@click.option(
    "--allow-client-shm/--no-allow-client-shm",
    default=False,
    show_default=True,
    help="Known for its false; this server takes no shared memory from clients.",
)
@click.option("--log-info/--no-log-info", default=True, show_default=True, help="Log messages of level INFO.")
@click.option("--log-warning/--no-log-warning", default=True, show_default=True, help="Log warnings.")
@click.option("--log-error/--no-log-error", default=True, show_default=True, help="Log errors.")
@click.option(
    "--log-format",
    type=click.Choice(["default", "ISO8601"]),
    default="default",
    show_default=True,
    help="Form of a log line.",
)
@click.option("--log-verbose", type=click.IntRange(min=0), default=0, help="1 logs more.")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def command(**given: Any) -> int:
    """Serve a Triton model repository over the KServe v2 / Triton HTTP protocol."""
    from repobuild_serve.errors import StartError
    from repobuild_serve.logs import LogControl, LogSettings

    _check_usage(given)
    debug = given.pop("debug")
    logs = LogControl(
        LogSettings(
            info=given.pop("log_info"),
            warning=given.pop("log_warning"),
            error=given.pop("log_error"),
            verbose=given.pop("log_verbose"),
            style=given.pop("log_format"),
        )
    )
    logs.install()
    try:
        from repobuild_serve.cli_values import options
        from repobuild_serve.server import serve

        return serve(options(given, logs))
    except StartError as exc:
        if debug:
            logging.getLogger(__name__).exception("the server did not start")
        click.echo(exc.render(), err=True)
        return exc.exit_code
    except ImportError as exc:
        if debug:
            raise
        click.echo(f"error[package-missing]: {exc}\nhint: pip install 'repobuild[cpu]'", err=True)
        return 7
    except Exception as exc:
        if debug:
            raise
        click.echo(
            f"error[internal]: {type(exc).__name__}: {exc}\nhint: run again with --debug and report it",
            err=True,
        )
        return 70


def _check_usage(given: dict[str, Any]) -> None:
    """Check what click cannot: options that go together, or do not.

    Raises:
        click.UsageError: They are not as they must be.
    """
    if given["repository"] is None and not given["more_repositories"]:
        raise click.UsageError("Missing argument 'REPOSITORY'.")
    if not given["http_address"].strip():
        raise click.UsageError("--http-address must not be empty; 0.0.0.0 or :: is every address.")
    if given["load_model"] and given["model_control_mode"].lower() != "explicit":
        raise click.UsageError("--load-model requires --model-control-mode=explicit.")
    if "*" in given["load_model"] and len(given["load_model"]) > 1:
        raise click.UsageError("--load-model=* must be the only --load-model.")
    if any("/" in name or name.strip() in {"", ".", ".."} for name in given["load_model"]):
        raise click.UsageError("--load-model must be the name of a model.")
    if given["model_namespacing"]:
        raise click.UsageError("--model-namespacing is not supported: a model name must be unique.")
    if set(given["model_config_name"]) & {"/", "\0"}:
        raise click.UsageError("--model-config-name must be a name, not a path.")
