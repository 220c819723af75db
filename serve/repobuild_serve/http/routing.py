"""What a route is, and what the modules of routes share."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from repobuild_serve.core.model import ModelVersion
from repobuild_serve.core.services import Directory
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.http.exchange import Exchange
from repobuild_serve.http.parser import Request

MODEL = rb"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?"
"""Start of the paths that name a model; the version is optional."""

Answer = bytes | Coroutine[Any, Any, bytes]
"""An answer, or what to wait for it with."""

Handler = Callable[[Request, "re.Match[bytes]", Exchange], "Answer | None"]
"""Answers a request; None if the exchange is completed by other means. May raise ``RequestError``."""


class Api(enum.StrEnum):
    """The groups of routes that can be restricted (Triton contract, restricted APIs)."""

    HEALTH = "health"
    METADATA = "metadata"
    INFERENCE = "inference"
    SHARED_MEMORY = "shared-memory"
    MODEL_CONFIG = "model-config"
    MODEL_REPOSITORY = "model-repository"
    STATISTICS = "statistics"
    TRACE = "trace"
    LOGGING = "logging"


@dataclass(frozen=True, slots=True)
class Route:
    """A path, its methods, and what answers it.

    Attributes:
        path: The whole path, without the query.
        methods: The methods it takes; others are answered 405.
        api: The group it belongs to.
        handler: What answers.
        plain: Whether its 405 is sent as ``text/plain``.
    """

    path: re.Pattern[bytes]
    methods: tuple[bytes, ...]
    api: Api
    handler: Handler
    plain: bool = False


def get(path: bytes, api: Api, handler: Handler, *, plain: bool = False) -> Route:
    """A route that takes GET."""
    return Route(re.compile(path), (b"GET",), api, handler, plain)


def post(path: bytes, api: Api, handler: Handler, *, plain: bool = False) -> Route:
    """A route that takes POST."""
    return Route(re.compile(path), (b"POST",), api, handler, plain)


def get_or_post(path: bytes, api: Api, handler: Handler) -> Route:
    """A route that takes both."""
    return Route(re.compile(path), (b"GET", b"POST"), api, handler)


def named_model(models: Directory, match: re.Match[bytes]) -> ModelVersion:
    """The READY version that a path of the form ``MODEL`` names.

    Raises:
        RequestError: There is none.
    """
    return models.find(match["model"].decode("utf-8", "replace"), (match["version"] or b"").decode("ascii"))


def unserved(extension: str) -> Handler:
    """A handler for the routes of a protocol extension that this server does not have."""

    def refuse(request: Request, match: re.Match[bytes], exchange: Exchange) -> bytes | None:
        raise RequestError(f"the {extension} extension is not supported by this server yet", Code.UNSUPPORTED)

    return refuse
