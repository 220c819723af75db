"""The application of the HTTP port: finds the route of a request (Triton contract, route table)."""

from __future__ import annotations

import re
from functools import partial

from repobuild_serve.errors import RequestError
from repobuild_serve.http.compression import chosen_encoding
from repobuild_serve.http.exchange import Exchange, KnownHead
from repobuild_serve.http.front import FrontOptions
from repobuild_serve.http.generate import GenerateService
from repobuild_serve.http.generate_routes import GenerateRoutes
from repobuild_serve.http.infer import InferService, header_length
from repobuild_serve.http.later import Later
from repobuild_serve.http.limits import Limits
from repobuild_serve.http.logging_routes import LoggingRoutes
from repobuild_serve.http.metadata_routes import MetadataRoutes
from repobuild_serve.http.parser import Request
from repobuild_serve.http.replies import JSON, PLAIN, error_reply, refusal
from repobuild_serve.http.repository_routes import RepositoryRoutes
from repobuild_serve.http.routing import MODEL, Api, get_or_post, named_model, unserved
from repobuild_serve.http.shared_memory_routes import SharedMemoryRoutes
from repobuild_serve.lifecycle import Models
from repobuild_serve.profile import Profile
from repobuild_serve.wire.reading import json_too_large

_INFER = re.compile(MODEL + rb"/infer")
# Headers that change what an inference does; a request with one of them is never remembered.
_SPECIAL = frozenset({b"content-encoding", b"transfer-encoding", b"expect", b"upgrade"})


class Routes:
    """The application of the HTTP port.

    Args:
        models: The models.
        infer: The inference route.
        generate: What answers the generate routes.
        limits: Body sizes.
        server_id: Name in the server metadata.
        profile: Which release's answers are given where releases differ.
        front: How the port is set up.
        strict_readiness: Whether one failed model makes the server not ready.
    """

    def __init__(
        self,
        models: Models,
        infer: InferService,
        generate: GenerateService,
        limits: Limits,
        server_id: str,
        profile: Profile,
        front: FrontOptions,
        *,
        strict_readiness: bool,
    ) -> None:
        self._models = models
        self._infer = infer
        self._limits = limits
        self._legacy = profile.legacy
        self._access = front.access
        self._forwarding = front.forwarding
        self._later = Later()
        self._metadata = MetadataRoutes(models, server_id, profile, strict_readiness=strict_readiness)
        self._routes = (
            *self._metadata.routes(),
            *RepositoryRoutes(models, profile).routes(),
            *SharedMemoryRoutes(profile).routes(),
            *GenerateRoutes(models, generate).routes(),
            *LoggingRoutes(front.logs).routes(),
            get_or_post(rb"/v2(?:/models/[^/]+)?/trace/setting", Api.TRACE, unserved("trace")),
        )

    def exiting(self) -> None:
        """From now on the server tells that it is shutting down."""
        self._metadata.exiting = True

    def respond(self, request: Request, exchange: Exchange) -> bytes | None:
        """See ``Application.respond``."""
        refused = self._access.stranger(request)
        if refused is not None:
            return refused
        path = request.target.partition(b"?")[0]
        match = _INFER.fullmatch(path)
        if match is not None:
            refused = self._access.restricted(request, Api.INFERENCE)
            if refused is not None:
                return refused
            if request.method != b"POST":
                return _method_not_allowed(PLAIN)
            try:
                endpoint = self._infer.endpoint(named_model(self._models, match))
                forwarded = self._forwarding.parameters(request.fields)
            except RequestError as exc:
                return refusal(exc)
            return self._infer.start(request, endpoint, forwarded, exchange)
        for route in self._routes:
            match = route.path.fullmatch(path)
            if match is not None:
                refused = self._access.restricted(request, route.api)
                if refused is not None:
                    return refused
                if request.method not in route.methods:
                    return _method_not_allowed(PLAIN if route.plain else JSON)
                try:
                    answer = route.handler(request, match, exchange)
                except RequestError as exc:
                    return refusal(exc)
                if answer is None or isinstance(answer, bytes):
                    return answer
                self._later.complete(exchange, answer)
                return None
        return error_reply(404, "Not Found", PLAIN)

    def known_head(self, request: Request) -> KnownHead | None:
        """See ``Application.known_head``: inferences whose header asks for nothing unusual."""
        match = _INFER.fullmatch(request.target.partition(b"?")[0])
        headers = request.headers
        if match is None or request.method != b"POST" or not request.keep_alive or request.http10:
            return None
        if not _SPECIAL.isdisjoint(headers) or b"content-length" not in headers:
            return None
        if self._access.stranger(request) or self._access.restricted(request, Api.INFERENCE):
            return None
        try:
            endpoint = self._infer.endpoint(named_model(self._models, match))
            size = len(request.body)
            length = header_length(headers, size, legacy=self._legacy)
            forwarded = self._forwarding.parameters(request.fields)
        except RequestError:
            return None
        encoding = chosen_encoding(headers.get(b"accept-encoding", b""))
        return KnownHead(size, partial(self._infer.begin, endpoint, length, encoding, forwarded))

    def body_limit(self, target: bytes, headers: dict[bytes, bytes]) -> tuple[int, str]:
        """See ``Application.body_limit``."""
        if not self._access.knows(target, headers):
            # Nothing is held for strangers beyond what a header may take, too.
            return self._limits.header_size, "request body is too large"
        limit = self._limits.input_size
        stated = headers.get(b"inference-header-content-length", b"").strip()
        if stated.isdigit() and stated.strip(b"0") and _INFER.fullmatch(target.partition(b"?")[0]):
            total = limit + self._limits.binary_size
            return total, (
                f"Request size of {{size}} bytes exceeds the maximum allowed value of {total} bytes. "
                "Use --http-max-binary-size to increase the limit."
            )
        return limit, json_too_large("{size}", limit)


def _method_not_allowed(content_type: bytes) -> bytes:
    return error_reply(405, "Method Not Allowed", content_type)
