"""The model repository extension: index, load, unload (Triton contract, JSON shapes and lifecycle)."""

from __future__ import annotations

import re
from collections.abc import Coroutine
from typing import Any

from repobuild_serve.errors import Code, RequestError
from repobuild_serve.http.exchange import Exchange
from repobuild_serve.http.parser import Request
from repobuild_serve.http.replies import document_reply, reply
from repobuild_serve.http.routing import Api, Route, post
from repobuild_serve.lifecycle import Models
from repobuild_serve.lifecycle.overrides import FILE_PREFIX, decode_base64
from repobuild_serve.profile import Profile
from repobuild_serve.wire.json_text import load_json

_REPOSITORY = rb"/v2/repository(?:/(?P<repository>[^/]+))?"
_MODEL = _REPOSITORY + rb"/models/(?P<model>[^/]+)"


class RepositoryRoutes:
    """Index, load and unload, whose answers come later.

    Args:
        models: The models.
        profile: Which release's answers are given where releases differ.
    """

    def __init__(self, models: Models, profile: Profile) -> None:
        self._models = models
        self._profile = profile

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            post(_REPOSITORY + rb"/index", Api.MODEL_REPOSITORY, self._read_index),
            post(_MODEL + rb"/load", Api.MODEL_REPOSITORY, self._read_load),
            post(_MODEL + rb"/unload", Api.MODEL_REPOSITORY, self._read_unload),
        )

    def _read_index(
        self, request: Request, match: re.Match[bytes], exchange: Exchange
    ) -> Coroutine[Any, Any, bytes]:
        ready_only = _member(_document(request), "ready", False)
        if not isinstance(ready_only, bool):
            if self._profile.legacy:
                raise RequestError("attempt to access JSON non-boolean as boolean", Code.INTERNAL)
            raise RequestError("Invalid value for 'ready': expected a boolean")
        return self._index(ready_only)

    def _read_load(
        self, request: Request, match: re.Match[bytes], exchange: Exchange
    ) -> Coroutine[Any, Any, bytes]:
        _refuse_repository(match)
        parameters: dict[str, str | bytes] = {}
        given = _member(_document(request), "parameters", {})
        if not isinstance(given, dict):
            raise RequestError("attempt to get members for non-object", Code.INTERNAL)
        for name, value in given.items():
            if not isinstance(value, str):
                raise RequestError("attempt to access JSON non-string as string", Code.INTERNAL)
            if name == "config":
                parameters[name] = value
            elif name.startswith(FILE_PREFIX):
                parameters[name] = decode_base64(value)
            else:
                raise RequestError("unexpected error on creating Triton parameter", Code.INTERNAL)
        return self._load(_name(match), parameters)

    def _read_unload(
        self, request: Request, match: re.Match[bytes], exchange: Exchange
    ) -> Coroutine[Any, Any, bytes]:
        _refuse_repository(match)
        try:
            dependents = _dependents(request)
        except RequestError:
            # 24.10 takes any body, and one that it cannot read for an empty one.
            if not self._profile.legacy:
                raise
            dependents = False
        return self._unload(_name(match), dependents)

    async def _index(self, ready_only: bool) -> bytes:
        return document_reply(await self._models.index(ready_only=ready_only))

    async def _load(self, name: str, parameters: dict[str, str | bytes]) -> bytes:
        await self._models.load(name, parameters)
        return reply(200)

    async def _unload(self, name: str, dependents: bool) -> bytes:
        await self._models.unload(name, dependents=dependents)
        return reply(200)


def _dependents(request: Request) -> bool:
    found = _member(_member(_document(request), "parameters", {}), "unload_dependents", False)
    if not isinstance(found, bool):
        raise RequestError(
            "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean",
            Code.INTERNAL,
        )
    return found


def _document(request: Request) -> Any:
    return load_json(request.body) if request.body else None


def _member(document: Any, name: str, default: Any) -> Any:
    return document.get(name, default) if isinstance(document, dict) else default


def _name(match: re.Match[bytes]) -> str:
    return match["model"].decode("utf-8", "replace")


def _refuse_repository(match: re.Match[bytes]) -> None:
    if match["repository"]:
        raise RequestError("'repository_name' specification is not supported", Code.UNSUPPORTED)
