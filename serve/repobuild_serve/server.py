"""Wiring: load the models, open the ports, serve until a signal, stop in order."""

from __future__ import annotations

import asyncio
import atexit
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from repobuild_serve import __version__
from repobuild_serve.backends.options import configure_backends
from repobuild_serve.core.internal import InternalCalls
from repobuild_serve.core.model import ModelVersion
from repobuild_serve.core.router import Router
from repobuild_serve.core.services import Services
from repobuild_serve.errors import StartError
from repobuild_serve.gpus import Gpu, visible_gpus
from repobuild_serve.http.budget import Budget
from repobuild_serve.http.generate import GenerateService
from repobuild_serve.http.infer import InferService
from repobuild_serve.http.routes import Routes
from repobuild_serve.lifecycle import Control, ControlOptions, Mode, Models, Poller
from repobuild_serve.metrics import MetricsRoutes
from repobuild_serve.options import Options
from repobuild_serve.ports import Ports
from repobuild_serve.repository import model_folders

_LOG = logging.getLogger(__name__)
_DRAIN_STEP = 0.01
_OTHER_FILES = 1024
_COLLECTOR = (50_000, 20, 100)
_STDIN = 0


class Server:
    """One run of the server."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._models = Models()
        self._budget = Budget(options.limits.held_size)
        self._router = Router()
        self._infer = InferService(options.limits, self._budget, self._router, options.profile)
        self._routes = Routes(
            self._models,
            self._infer,
            GenerateService(options.limits, self._budget, self._router, options.profile),
            options.limits,
            options.server_id,
            options.profile,
            options.front,
            strict_readiness=options.strict_readiness,
        )
        self._ports = Ports(options.limits, self._budget)
        self._stop = asyncio.Event()
        self._models.watch(self._swapped)

    async def run(self) -> int:
        """Serve until SIGTERM, SIGINT, or the end of standard input if that was asked for.

        Returns:
            0, or 1 if requests were still in flight when the exit time-out expired.

        Raises:
            StartError: The server cannot start.
        """
        options, loop = self._options, asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        if options.stop_with_stdin:
            self._watch_stdin(loop)
        self._raise_file_limit()
        await loop.run_in_executor(None, configure_backends, options.backend_options)
        gpus = await loop.run_in_executor(None, visible_gpus, options.min_compute_capability)
        services = Services(
            loop, InternalCalls(loop, self._router), self._models, options.profile, options.backend_options
        )
        control = Control(self._control_options(gpus), self._models, services, self._router)
        try:
            await loop.run_in_executor(None, self._check_repositories)
            problems = await self._load(control)
            if problems is None:
                return await self._end(control, loop.time() + options.exit_timeout)
            if problems and options.exit_on_error:
                raise StartError(
                    "models-not-loaded",
                    "failed to load all models",
                    evidence=tuple(problems),
                    hint="mend the models named above, or start with --exit-on-error=false to serve the "
                    "others",
                    exit_code=3,
                )
            # What is loaded stays, and requests leave no cycles: the collector need not walk either all the
            # time.
            gc.collect()
            gc.freeze()
            gc.set_threshold(*_COLLECTOR)
            await self._open_ports(services)
            tasks = [loop.create_task(self._ports.sweep())]
            if options.mode is Mode.POLL:
                poller = Poller(control, self._models, options.poll_seconds)
                tasks.append(loop.create_task(poller.run()))
            await self._stop.wait()
            for task in tasks:
                task.cancel()
            return await self._drain(control)
        finally:
            self._models.close()
            await self._ended(services)
            control.close()
            self._ports.withdraw()

    async def _ended(self, services: Services) -> None:
        """Wait for instances that take time to end; those that were told to in order have had theirs."""
        # Closing a model may only have asked the loop to begin with it.
        await asyncio.sleep(0)
        if services.endings:
            seconds = 0 if self._stop.is_set() else self._options.exit_timeout
            await asyncio.wait(services.endings, timeout=seconds)

    def _control_options(self, gpus: tuple[Gpu, ...]) -> ControlOptions:
        options = self._options
        return ControlOptions(
            (options.repository, *options.more_repositories),
            options.mode,
            auto_complete=options.auto_complete,
            config_name=options.config_name,
            threads=options.load_threads,
            retries=options.load_retries,
            startup=options.startup_models,
            gpus=gpus,
            min_compute_capability=options.min_compute_capability,
            exit_on_error=options.exit_on_error,
        )

    def _check_repositories(self) -> None:
        for repository in (self._options.repository, *self._options.more_repositories):
            model_folders(repository)

    async def _load(self, control: Control) -> list[str] | None:
        """Load what is to be there from the start.

        Returns:
            One line per model that is not READY; None if the server was told to stop meanwhile.
        """
        loop = asyncio.get_running_loop()
        loading = loop.create_task(control.load_startup())
        stopping = loop.create_task(self._stop.wait())
        await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            stopping.cancel()
            return loading.result()
        _LOG.info("stopping: models that are being loaded are waited for, others not begun")
        loading.cancel()
        await asyncio.wait((loading,))
        return None

    def _watch_stdin(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.add_reader(_STDIN, self._read_stdin)
        except OSError as exc:
            raise StartError(
                "stdin-not-watchable",
                "standard input is neither a pipe nor a terminal, so its end cannot be waited for",
                evidence=(str(exc),),
                hint="give the server a pipe, or leave --stop-with-stdin out",
                exit_code=2,
            ) from exc

    def _read_stdin(self) -> None:
        """Drop what comes; its end means that the parent process is gone."""
        if not os.read(_STDIN, 4096):
            asyncio.get_running_loop().remove_reader(_STDIN)
            self._stop.set()

    def _raise_file_limit(self) -> None:
        """Allow as many open files as connections and instances may need, as far as the system lets us."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = self._options.limits.connections + _OTHER_FILES
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

    async def _open_ports(self, services: Services) -> None:
        options, ports = self._options, self._ports
        http_port = await ports.listen(
            self._routes, options.http_address, options.http_port, "HTTP", options.front.tls
        )
        metrics_port = None
        if options.allow_metrics:
            metrics = MetricsRoutes(self._models, options.limits, services.custom_metrics)
            metrics_port = await ports.listen(
                metrics, options.metrics_address, options.metrics_port, "metrics"
            )
        _LOG.info("gRPC is not served by this release: nothing listens on port %d", options.grpc_port)
        if options.port_file is not None:
            ports.announce(options.port_file, http_port, metrics_port)
        _LOG.info("ready: repobuild_serve %s serves %s", __version__, options.repository)

    def _swapped(self, gone: Sequence[ModelVersion]) -> None:
        """Drop what was remembered of versions that serve no longer, and of headers that led to them."""
        self._infer.forget(gone)
        self._ports.forget()

    async def _drain(self, control: Control) -> int:
        """Stop accepting, let what is in flight finish, unload, and say whether it was done in time."""
        loop = asyncio.get_running_loop()
        _LOG.info("stopping: requests in flight are finished, new ones refused")
        self._routes.exiting()
        control.refuse()
        self._ports.stop()
        until = loop.time() + self._options.exit_timeout
        while self._models.busy() or self._ports.busy():
            if loop.time() >= until:
                return _expired()
            await asyncio.sleep(_DRAIN_STEP)
        return await self._end(control, until)

    async def _end(self, control: Control, until: float) -> int:
        """Unload everything."""
        try:
            async with asyncio.timeout_at(until):
                await control.end()
        except TimeoutError:
            return _expired()
        _LOG.info("stopped")
        return 0


def _expired() -> int:
    _LOG.error("Exit timeout expired. Exiting immediately.")
    return 1


def serve(options: Options) -> int:
    """Run a server in this process until a signal ends it; its exit status.

    Raises:
        StartError: The server cannot start.
    """
    factory = None
    try:
        import uvloop
    except ImportError:
        _LOG.warning("uvloop is not installed: the server runs on asyncio's own loop, which is slower")
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        status = runner.run(_run(options))
    if status:
        _leave(status)
    return status


def _leave(status: int) -> NoReturn:
    """End the process although threads are still within native code of a model.

    The interpreter's own end would make such a thread abort the process when it comes back for the lock.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - what a normal end would call, and there is no public name for it
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


async def _run(options: Options) -> int:
    return await Server(options).run()
