"""The application of the HTTP port: finds the route of a request (Triton contract, route table)."""

from __future__ import annotations

import re
from functools import partial

from repobuild_serve.errors import RequestError
from repobuild_serve.http.compression import chosen_encoding
from repobuild_serve.http.exchange import Exchange, KnownHead
from repobuild_serve.http.infer import InferService, header_length
from repobuild_serve.http.limits import Limits
from repobuild_serve.http.metadata_routes import MetadataRoutes
from repobuild_serve.http.parser import Request
from repobuild_serve.http.replies import JSON, PLAIN, error_reply, refusal
from repobuild_serve.http.repository_routes import RepositoryRoutes
from repobuild_serve.http.routing import MODEL, Api, get_or_post, named_model, post, unserved
from repobuild_serve.http.shared_memory_routes import shared_memory_routes
from repobuild_serve.lifecycle import Models
from repobuild_serve.profile import Profile

_INFER = re.compile(MODEL + rb"/infer")
# Headers that change what an inference does; a request with one of them is never remembered.
_SPECIAL = frozenset({b"content-encoding", b"transfer-encoding", b"expect", b"upgrade"})


class Routes:
    """The application of the HTTP port.

    Args:
        models: The models.
        infer: The inference route.
        limits: Body sizes.
        server_id: Name in the server metadata.
        profile: Which release's answers are given where releases differ.
        strict_readiness: Whether one failed model makes the server not ready.
    """

    def __init__(
        self,
        models: Models,
        infer: InferService,
        limits: Limits,
        server_id: str,
        profile: Profile,
        *,
        strict_readiness: bool,
    ) -> None:
        self._models = models
        self._infer = infer
        self._limits = limits
        self._metadata = MetadataRoutes(models, server_id, profile, strict_readiness=strict_readiness)
        self._routes = (
            *self._metadata.routes(),
            *RepositoryRoutes(models).routes(),
            *shared_memory_routes(),
            post(MODEL + rb"/generate(?:_stream)?", Api.INFERENCE, unserved("generate")),
            get_or_post(rb"/v2(?:/models/[^/]+)?/trace/setting", Api.TRACE, unserved("trace")),
            get_or_post(rb"/v2/logging", Api.LOGGING, unserved("logging")),
        )

    def exiting(self) -> None:
        """From now on the server tells that it is shutting down."""
        self._metadata.exiting = True

    def respond(self, request: Request, exchange: Exchange) -> bytes | None:
        """See ``Application.respond``."""
        path = request.target.partition(b"?")[0]
        match = _INFER.fullmatch(path)
        if match is not None:
            if request.method != b"POST":
                return _method_not_allowed(PLAIN)
            try:
                endpoint = self._infer.endpoint(named_model(self._models, match))
            except RequestError as exc:
                return refusal(exc)
            return self._infer.start(request, endpoint, exchange)
        for route in self._routes:
            match = route.path.fullmatch(path)
            if match is not None:
                if request.method not in route.methods:
                    return _method_not_allowed(PLAIN if route.plain else JSON)
                try:
                    return route.handler(request, match, exchange)
                except RequestError as exc:
                    return refusal(exc)
        return error_reply(404, "Not Found", PLAIN)

    def known_head(self, request: Request) -> KnownHead | None:
        """See ``Application.known_head``: inferences whose header asks for nothing unusual."""
        match = _INFER.fullmatch(request.target.partition(b"?")[0])
        headers = request.headers
        if match is None or request.method != b"POST" or not request.keep_alive or request.http10:
            return None
        if not _SPECIAL.isdisjoint(headers) or b"content-length" not in headers:
            return None
        try:
            endpoint = self._infer.endpoint(named_model(self._models, match))
            size = len(request.body)
            length = header_length(headers, size)
        except RequestError:
            return None
        encoding = chosen_encoding(headers.get(b"accept-encoding", b""))
        return KnownHead(size, partial(self._infer.begin, endpoint, length, encoding))

    def body_limit(self, target: bytes, headers: dict[bytes, bytes]) -> tuple[int, str]:
        """See ``Application.body_limit``."""
        limit = self._limits.input_size
        stated = headers.get(b"inference-header-content-length", b"").strip()
        if stated.isdigit() and stated.strip(b"0") and _INFER.fullmatch(target.partition(b"?")[0]):
            total = limit + self._limits.binary_size
            return total, (
                f"Request size of {{size}} bytes exceeds the maximum allowed value of {total} bytes. "
                "Use --http-max-binary-size to increase the limit."
            )
        return limit, (
            f"Request JSON size of {{size}} bytes exceeds the maximum allowed value of {limit} bytes. "
            "Use --http-max-input-size to increase the limit."
        )


def _method_not_allowed(content_type: bytes) -> bytes:
    return error_reply(405, "Method Not Allowed", content_type)
