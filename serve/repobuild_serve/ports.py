"""The ports that a server listens on, and their connections."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import ssl
import stat
from pathlib import Path

from repobuild_serve.errors import StartError
from repobuild_serve.http.budget import Budget
from repobuild_serve.http.exchange import Application
from repobuild_serve.http.host import Host
from repobuild_serve.http.limits import Limits
from repobuild_serve.http.protocol import Connection

_LOG = logging.getLogger(__name__)
_BACKLOG = 1024
_TLS_GOODBYE_SECONDS = 2


class Ports:
    """The listeners of one server. Every method is called on the loop's thread.

    Args:
        limits: Bounds of the HTTP front end.
        budget: Body bytes that may be held on all ports together.
    """

    def __init__(self, limits: Limits, budget: Budget) -> None:
        self._limits = limits
        self._budget = budget
        self._hosts: list[Host] = []
        self._listeners: list[asyncio.Server] = []
        self._announced: Path | None = None

    async def listen(
        self,
        application: Application,
        address: str,
        port: int,
        what: str,
        tls: ssl.SSLContext | None = None,
    ) -> int:
        """Open a port.

        Args:
            application: What answers requests.
            address: IPv4 or IPv6 address or host name.
            port: 0 takes a free one.
            what: What it is called in messages; its option is ``--<what>-port``.
            tls: Certificate and key, if the port speaks TLS.

        Returns:
            The port that listens.

        Raises:
            StartError: It cannot be opened.
        """
        loop, limits = asyncio.get_running_loop(), self._limits
        host = Host(application, limits, self._budget)
        option = f"--{what.lower()}-port"
        try:
            listener = await loop.create_server(
                lambda: Connection(host),
                address,
                port,
                family=_family(address),
                backlog=_BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=limits.read_seconds if tls else None,
                ssl_shutdown_timeout=_TLS_GOODBYE_SECONDS if tls else None,
            )
        except PermissionError as exc:
            raise StartError(
                "port-not-permitted",
                f"the {what} port {port} may not be opened by this user",
                evidence=(str(exc),),
                hint=f"choose a port from 1024 on with {option}",
                exit_code=7,
            ) from exc
        except (OSError, UnicodeError) as exc:
            # The second: a host name that cannot be looked up, since no DNS name is written like that.
            raise StartError(
                "port-unavailable",
                f"the {what} port {port} on {address} cannot be opened",
                evidence=(str(exc),),
                hint=f"stop what listens there, or choose another port with {option} (0 takes a free one)",
                exit_code=7,
            ) from exc
        self._hosts.append(host)
        self._listeners.append(listener)
        bound = int(listener.sockets[0].getsockname()[1])
        _LOG.info("%s listens on %s:%d%s", what, address, bound, " with TLS" if tls else "")
        return bound

    def announce(self, path: Path, http: int, metrics: int | None) -> None:
        """Write the ports to a file, whole or not at all.

        Raises:
            StartError: It cannot be written.
        """
        text = json.dumps({"http": http, "metrics": metrics, "pid": os.getpid()})
        try:
            _replace(path, text)
        except OSError as exc:
            raise StartError(
                "port-file-unwritable",
                f"the port file cannot be written: {path}",
                evidence=(str(exc),),
                hint="name a file in a folder that exists and may be written",
                exit_code=7,
            ) from exc
        self._announced = path

    def withdraw(self) -> None:
        """Remove the file that ``announce`` wrote, if it did."""
        if self._announced is not None:
            self._announced.unlink(missing_ok=True)

    async def sweep(self) -> None:
        """Once a second, drop connections whose time is over; until cancelled."""
        while True:
            await asyncio.sleep(1)
            for host in self._hosts:
                host.sweep()

    def forget(self) -> None:
        """Drop what headers mean, since it may mean another model now."""
        for host in self._hosts:
            host.forget()

    def stop(self) -> None:
        """Accept no more; connections close after the answers they wait for."""
        for listener in self._listeners:
            listener.close()
        for host in self._hosts:
            host.stop()

    def busy(self) -> bool:
        """Whether any connection is open."""
        return any(host.connections for host in self._hosts)


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all; anything but a file that bears its name stays as it is.

    Raises:
        OSError: It cannot be written.
    """
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        # A device, say, which root could replace.
        raise OSError("there is something of this name that is no regular file")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
