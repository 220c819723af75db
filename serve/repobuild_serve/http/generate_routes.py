"""The generate routes (Triton contract, generate and generate_stream)."""

from __future__ import annotations

import re
from functools import partial

from repobuild_serve.core.services import Directory
from repobuild_serve.errors import RequestError
from repobuild_serve.http.exchange import Exchange
from repobuild_serve.http.generate import GenerateService
from repobuild_serve.http.parser import Request
from repobuild_serve.http.replies import JSON, STATUS, error_reply
from repobuild_serve.http.routing import MODEL, Api, Route, named_model, post


class GenerateRoutes:
    """The two routes.

    Args:
        models: The models.
        service: What answers.
    """

    def __init__(self, models: Directory, service: GenerateService) -> None:
        self._models = models
        self._service = service

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            post(MODEL + rb"/generate", Api.INFERENCE, partial(self._generate, False)),
            post(MODEL + rb"/generate_stream", Api.INFERENCE, partial(self._generate, True)),
        )

    def _generate(
        self,
        streaming: bool,
        request: Request,
        match: re.Match[bytes],
        exchange: Exchange,
    ) -> bytes | None:
        try:
            version = named_model(self._models, match)
        except RequestError as exc:
            return error_reply(STATUS[exc.code], exc.text, JSON)
        return self._service.start(request, version, exchange, streaming=streaming)
