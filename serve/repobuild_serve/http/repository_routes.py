"""The repository routes: index, load and unload (Triton contract, JSON shapes)."""

from __future__ import annotations

import re

from repobuild_serve.errors import Code, RequestError
from repobuild_serve.http.exchange import Exchange
from repobuild_serve.http.parser import Request
from repobuild_serve.http.replies import document_reply
from repobuild_serve.http.routing import Api, Route, post
from repobuild_serve.lifecycle import Models
from repobuild_serve.wire.json_text import load_json

_REPOSITORY = rb"/v2/repository(?:/(?P<repository>[^/]+))?"


class RepositoryRoutes:
    """Index, load and unload.

    Args:
        models: The models.
    """

    def __init__(self, models: Models) -> None:
        self._models = models

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            post(_REPOSITORY + rb"/index", Api.MODEL_REPOSITORY, self._index),
            post(_REPOSITORY + rb"/models/[^/]+/(?:load|unload)", Api.MODEL_REPOSITORY, self._load),
        )

    def _index(self, request: Request, match: re.Match[bytes], exchange: Exchange) -> bytes:
        _refuse_repository(match)
        ready_only = False
        if request.body:
            document = load_json(request.body)
            ready_only = document.get("ready", False) if isinstance(document, dict) else False
            if not isinstance(ready_only, bool):
                raise RequestError("Invalid value for 'ready': expected a boolean")
        return document_reply(self._models.index(ready_only=ready_only))

    def _load(self, request: Request, match: re.Match[bytes], exchange: Exchange) -> bytes:
        _refuse_repository(match)
        raise RequestError(
            "explicit model load / unload is not allowed if polling is enabled", Code.UNAVAILABLE
        )


def _refuse_repository(match: re.Match[bytes]) -> None:
    if match["repository"]:
        raise RequestError("'repository_name' specification is not supported", Code.UNSUPPORTED)
