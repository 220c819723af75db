"""The routes that only tell: health, metadata, config and statistics (Triton contract, JSON shapes)."""

from __future__ import annotations

import re
from typing import Any

from repobuild_serve.config.printing import config_document
from repobuild_serve.core.model import ModelVersion
from repobuild_serve.core.readiness import READY, Readiness
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.http.exchange import Exchange
from repobuild_serve.http.parser import Request
from repobuild_serve.http.replies import PLAIN, document_reply, error_reply, reply
from repobuild_serve.http.routing import MODEL, Answer, Api, Route, get, named_model
from repobuild_serve.lifecycle import Models
from repobuild_serve.lifecycle.directory import parse_version
from repobuild_serve.profile import Profile

EXTENSIONS = (
    "classification",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "logging",
)
"""The protocol extensions of this release, in Triton's order; the list in metadata names no others."""


class MetadataRoutes:
    """Health, metadata, config and statistics.

    Args:
        models: The models.
        server_id: Name in the server metadata.
        profile: Which release's answers are given where releases differ.
        strict_readiness: Whether one failed model makes the server not ready.
    """

    def __init__(self, models: Models, server_id: str, profile: Profile, *, strict_readiness: bool) -> None:
        self._models = models
        self._server_id = server_id
        self._profile = profile
        self._strict = strict_readiness
        self.exiting = False

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            get(rb"/v2/health/live", Api.HEALTH, lambda *_: reply(200), plain=True),
            get(rb"/v2/health/ready", Api.HEALTH, self._ready, plain=True),
            get(rb"/v2", Api.METADATA, self._server_metadata),
            get(rb"/v2/models/stats", Api.STATISTICS, self._all_statistics),
            get(MODEL, Api.METADATA, self._metadata),
            get(MODEL + rb"/ready", Api.HEALTH, self._model_ready, plain=True),
            get(MODEL + rb"/config", Api.MODEL_CONFIG, self._config),
            get(MODEL + rb"/stats", Api.STATISTICS, self._statistics),
        )

    def _ready(self, request: Request, match: re.Match[bytes], exchange: Exchange) -> Answer:
        if self.exiting:
            return error_reply(503, "Server exiting", PLAIN)
        if not self._strict:
            return reply(200)
        return _when_known(self._models.readiness(instances=not self._profile.legacy), reply(400))

    def _server_metadata(self, request: Request, match: re.Match[bytes], exchange: Exchange) -> bytes:
        return document_reply(
            {"name": self._server_id, "version": self._profile.server_version, "extensions": EXTENSIONS}
        )

    def _metadata(self, request: Request, match: re.Match[bytes], exchange: Exchange) -> bytes:
        version = named_model(self._models, match)
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

    def _model_ready(self, request: Request, match: re.Match[bytes], exchange: Exchange) -> Answer:
        try:
            version = named_model(self._models, match)
        except RequestError as exc:
            if self._profile.legacy and exc.code in {Code.NOT_FOUND, Code.UNAVAILABLE}:
                return error_reply(400, "Model version not ready", PLAIN)
            raise
        readiness = READY if self._profile.legacy else version.readiness()
        return _when_known(readiness, error_reply(400, "Model version not ready", PLAIN))

    def _config(self, request: Request, match: re.Match[bytes], exchange: Exchange) -> bytes:
        return document_reply(config_document(named_model(self._models, match).settings.message))

    def _statistics(self, request: Request, match: re.Match[bytes], exchange: Exchange) -> bytes:
        name = match["model"].decode("latin-1")
        versions = self._models.versions(name)
        if not versions:
            raise RequestError(f"requested model '{name}' is not available")
        if match["version"]:
            parse_version(match["version"].decode("ascii"))
            try:
                versions = [named_model(self._models, match)]
            except RequestError as exc:
                raise RequestError(f"requested model version is not available for model '{name}'") from exc
        return _statistics_reply(versions)

    def _all_statistics(self, request: Request, match: re.Match[bytes], exchange: Exchange) -> bytes:
        return _statistics_reply(list(self._models.ready_versions()))


def _when_known(readiness: Readiness, refusal: bytes) -> Answer:
    """200 or ``refusal``: at once, unless models must be asked."""
    if readiness.settled:
        return reply(200) if readiness.up else refusal

    async def answer() -> bytes:
        return reply(200) if await readiness.ask() else refusal

    return answer()


def _statistics_reply(versions: list[ModelVersion]) -> bytes:
    items: list[dict[str, Any]] = [
        version.statistics.document(version.settings.name, version.version) for version in versions
    ]
    return document_reply({"model_stats": items})
