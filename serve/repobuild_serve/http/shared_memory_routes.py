"""The shared-memory routes of a server without regions (Triton contract, V3)."""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path
from typing import Any

from repobuild_serve.errors import Code, RequestError
from repobuild_serve.http.exchange import Exchange
from repobuild_serve.http.parser import Request
from repobuild_serve.http.replies import document_reply, reply
from repobuild_serve.http.routing import Api, Route, get, post
from repobuild_serve.profile import Profile
from repobuild_serve.wire.access import accepts
from repobuild_serve.wire.json_text import load_json

_PATH = rb"/v2/(?P<kind>system|cuda)sharedmemory(?:/region/(?P<region>[^/]+))?"
_OBJECTS = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory lies; nothing is written there
_HANDLE_BYTES = 64


class SharedMemoryRoutes:
    """Answers what can be answered without ever taking a region.

    Args:
        profile: Which release's answers are given where releases differ: in 24.10 client shared memory was
            on, so requests are checked, and regions that do not exist may be taken away.
    """

    def __init__(self, profile: Profile) -> None:
        self._legacy = profile.legacy

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            get(_PATH + rb"/status", Api.SHARED_MEMORY, self._status),
            post(_PATH + rb"/register", Api.SHARED_MEMORY, self._register),
            post(_PATH + rb"/unregister", Api.SHARED_MEMORY, self._unregister),
        )

    def _status(self, request: Request, match: re.Match[bytes], exchange: Exchange) -> bytes:
        if match["region"]:
            region, kind = match["region"].decode("utf-8", "replace"), match["kind"].decode("ascii")
            raise RequestError(f"Unable to find {kind} shared memory region: '{region}'", Code.NOT_FOUND)
        return document_reply([])

    def _unregister(self, request: Request, match: re.Match[bytes], exchange: Exchange) -> bytes:
        if not self._legacy:
            raise _disabled()
        return reply(200)

    def _register(self, request: Request, match: re.Match[bytes], exchange: Exchange) -> bytes:
        if self._legacy:
            kind = match["kind"].decode("ascii")
            if not match["region"]:
                raise RequestError(f"'region name' is necessary to register {kind} shared memory region")
            document = load_json(request.body)
            if kind == "system":
                _check_system(document)
            else:
                _check_cuda(document)
        raise _disabled()


def _check_system(document: Any) -> None:
    key = _field(document, "key", "string")
    if isinstance(document, dict) and "offset" in document:
        _field(document, "offset", "unsigned-integer")
    _field(document, "byte_size", "unsigned-integer")
    if "/" in key.strip("/") or not (_OBJECTS / key.strip("/")).exists():
        raise RequestError(f"Unable to open shared memory region: '{key}'", Code.INTERNAL)


def _check_cuda(document: Any) -> None:
    handle = _field(document, "raw_handle", None)
    text = _field(handle, "b64", "string")
    _field(document, "byte_size", "unsigned-integer")
    _field(document, "device_id", "unsigned-integer")
    try:
        size = len(base64.b64decode(text))
    except (binascii.Error, ValueError):
        size = 0
    if size != _HANDLE_BYTES:
        raise RequestError("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")


def _field(document: Any, key: str, want: str | None) -> Any:
    if not isinstance(document, dict) or key not in document:
        raise RequestError(f"Shared memory register request has no '{key}' field")
    if want is not None and not accepts(document[key], want):
        raise RequestError(f"attempt to access JSON non-{want} as {want}", Code.INTERNAL)
    return document[key]


def _disabled() -> RequestError:
    return RequestError(
        "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.",
        Code.UNSUPPORTED,
    )
