"""Every route of the HTTP front end, apart from the inside of inference (Triton contract, route table)."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from repobuild_serve.config.printing import config_document
from repobuild_serve.core.model import ModelVersion
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.http.compression import chosen_encoding
from repobuild_serve.http.exchange import Exchange, KnownHead
from repobuild_serve.http.infer import InferService, header_length
from repobuild_serve.http.later import Later
from repobuild_serve.http.limits import Limits
from repobuild_serve.http.parser import Request
from repobuild_serve.http.replies import JSON, PLAIN, document_reply, error_reply, refusal, reply
from repobuild_serve.http.repository_routes import RepositoryRoutes
from repobuild_serve.lifecycle import Models
from repobuild_serve.profile import Profile

EXTENSIONS = (
    "classification",
    "model_repository",
    "model_repository(unload_dependents)",
    "model_configuration",
    "binary_tensor_data",
    "parameters",
    "statistics",
)
"""The protocol extensions of this release; the list in metadata names no others."""

_MODEL = rb"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?"
_INFER = re.compile(_MODEL + rb"/infer")
_REPOSITORY = rb"/v2/repository(?:/(?P<repository>[^/]+))?"
_SHARED_MEMORY = rb"/v2/(?:system|cuda)sharedmemory(?:/region/[^/]+)?"
# Headers that change what an inference does; a request with one of them is never remembered.
_SPECIAL = frozenset({b"content-encoding", b"transfer-encoding", b"expect", b"upgrade"})


@dataclass(frozen=True, slots=True)
class Route:
    """A path, its method, and what answers it."""

    path: re.Pattern[bytes]
    method: bytes
    handler: Callable[[Request, re.Match[bytes]], bytes | Coroutine[Any, Any, bytes]]
    plain: bool = False


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
        self._server_id = server_id
        self._profile = profile
        self._strict = strict_readiness
        self.exiting = False
        self._later = Later()
        repository = RepositoryRoutes(models, profile)
        get, post = b"GET", b"POST"
        self._routes = (
            Route(re.compile(rb"/v2/health/live"), get, lambda *_: reply(200), plain=True),
            Route(re.compile(rb"/v2/health/ready"), get, self._ready, plain=True),
            Route(re.compile(rb"/v2"), get, self._server_metadata),
            Route(re.compile(rb"/v2/models/stats"), get, self._all_statistics),
            Route(re.compile(_MODEL), get, self._metadata),
            Route(re.compile(_MODEL + rb"/ready"), get, self._model_ready, plain=True),
            Route(re.compile(_MODEL + rb"/config"), get, self._config),
            Route(re.compile(_MODEL + rb"/stats"), get, self._statistics),
            Route(re.compile(_REPOSITORY + rb"/index"), post, repository.index),
            Route(re.compile(_REPOSITORY + rb"/models/(?P<model>[^/]+)/load"), post, repository.load),
            Route(re.compile(_REPOSITORY + rb"/models/(?P<model>[^/]+)/unload"), post, repository.unload),
            Route(re.compile(_SHARED_MEMORY + rb"/(?:register|unregister)"), post, _no_shared_memory),
            Route(re.compile(_SHARED_MEMORY + rb"/status"), get, _no_shared_memory),
            Route(re.compile(_MODEL + rb"/generate(?:_stream)?"), post, _unserved("generate")),
            Route(re.compile(rb"/v2(?:/models/[^/]+)?/trace/setting"), b"", _unserved("trace")),
            Route(re.compile(rb"/v2/logging"), b"", _unserved("logging")),
        )

    # Application

    def respond(self, request: Request, exchange: Exchange) -> bytes | None:
        """See ``Application.respond``."""
        path = request.target.partition(b"?")[0]
        match = _INFER.fullmatch(path)
        if match is not None:
            if request.method != b"POST":
                return _method_not_allowed(PLAIN)
            try:
                endpoint = self._infer.endpoint(self._find(match))
            except RequestError as exc:
                return refusal(exc)
            return self._infer.start(request, endpoint, exchange)
        for route in self._routes:
            match = route.path.fullmatch(path)
            if match is not None:
                if route.method and request.method != route.method:
                    return _method_not_allowed(PLAIN if route.plain else JSON)
                try:
                    answer = route.handler(request, match)
                except RequestError as exc:
                    return refusal(exc)
                if isinstance(answer, bytes):
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
        try:
            endpoint = self._infer.endpoint(self._find(match))
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

    # Routes

    def _ready(self, request: Request, match: re.Match[bytes]) -> bytes:
        if self.exiting:
            return error_reply(503, "Server exiting", PLAIN)
        ready = not self._strict or self._models.all_ready(ask_instances=not self._profile.legacy)
        return reply(200 if ready else 400)

    def _server_metadata(self, request: Request, match: re.Match[bytes]) -> bytes:
        return document_reply(
            {"name": self._server_id, "version": self._profile.server_version, "extensions": EXTENSIONS}
        )

    def _metadata(self, request: Request, match: re.Match[bytes]) -> bytes:
        version = self._find(match)
        settings = version.settings
        if match["version"]:
            versions = [str(version.version)]
        else:
            versions = [str(version.version) for version in self._models.versions(settings.name)]
        lead = [-1] if settings.batched else []
        inputs, outputs = (
            [
                {"name": item.name, "datatype": item.datatype.wire, "shape": [*lead, *item.dims]}
                for item in section
            ]
            for section in (settings.inputs, settings.outputs)
        )
        return document_reply(
            {
                "name": settings.name,
                "versions": versions,
                "platform": settings.platform,
                "inputs": inputs,
                "outputs": outputs,
            }
        )

    def _model_ready(self, request: Request, match: re.Match[bytes]) -> bytes:
        try:
            version = self._find(match)
        except RequestError as exc:
            if self._profile.legacy and exc.code in {Code.NOT_FOUND, Code.UNAVAILABLE}:
                return error_reply(400, "Model version not ready", PLAIN)
            raise
        if not self._profile.legacy and not version.ready():
            return error_reply(400, "Model version not ready", PLAIN)
        return reply(200)

    def _config(self, request: Request, match: re.Match[bytes]) -> bytes:
        return document_reply(config_document(self._find(match).settings.message))

    def _statistics(self, request: Request, match: re.Match[bytes]) -> bytes:
        name = match["model"].decode("latin-1")
        versions = self._models.versions(name)
        if not versions:
            raise RequestError(f"requested model '{name}' is not available")
        if match["version"]:
            try:
                versions = [self._find(match)]
            except RequestError as exc:
                raise RequestError(f"requested model version is not available for model '{name}'") from exc
        return _statistics_reply(versions)

    def _all_statistics(self, request: Request, match: re.Match[bytes]) -> bytes:
        return _statistics_reply(list(self._models.ready_versions()))

    def _find(self, match: re.Match[bytes]) -> ModelVersion:
        return self._models.find(
            match["model"].decode("utf-8", "replace"), (match["version"] or b"").decode("ascii")
        )


def _statistics_reply(versions: list[ModelVersion]) -> bytes:
    items: list[dict[str, Any]] = [
        version.statistics.document(version.settings.name, version.version) for version in versions
    ]
    return document_reply({"model_stats": items})


def _method_not_allowed(content_type: bytes) -> bytes:
    return error_reply(405, "Method Not Allowed", content_type)


def _no_shared_memory(request: Request, match: re.Match[bytes]) -> bytes:
    raise RequestError(
        "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.",
        Code.UNSUPPORTED,
    )


def _unserved(extension: str) -> Callable[[Request, re.Match[bytes]], bytes]:
    def refuse(request: Request, match: re.Match[bytes]) -> bytes:
        raise RequestError(f"the {extension} extension is not supported by this server yet", Code.UNSUPPORTED)

    return refuse
