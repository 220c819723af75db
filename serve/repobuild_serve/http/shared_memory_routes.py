"""The shared-memory routes, which have no regions to tell of (Triton contract, V3)."""

from __future__ import annotations

import re

from repobuild_serve.errors import Code, RequestError
from repobuild_serve.http.exchange import Exchange
from repobuild_serve.http.parser import Request
from repobuild_serve.http.routing import Api, Route, get, post

_PATH = rb"/v2/(?:system|cuda)sharedmemory(?:/region/[^/]+)?"


def shared_memory_routes() -> tuple[Route, ...]:
    """The routes."""
    return (
        post(_PATH + rb"/(?:register|unregister)", Api.SHARED_MEMORY, _disabled),
        get(_PATH + rb"/status", Api.SHARED_MEMORY, _disabled),
    )


def _disabled(request: Request, match: re.Match[bytes], exchange: Exchange) -> bytes:
    raise RequestError(
        "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.",
        Code.UNSUPPORTED,
    )
