"""The log settings, read and changed by clients (Triton contract, logging)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from repobuild_serve.errors import Code, RequestError
from repobuild_serve.http.exchange import Exchange
from repobuild_serve.http.parser import Request
from repobuild_serve.http.replies import document_reply
from repobuild_serve.http.routing import Api, Route, get_or_post
from repobuild_serve.logs import FORMATS, LogControl, LogSettings
from repobuild_serve.wire.access import accepts
from repobuild_serve.wire.json_text import load_json

_KEYS = {
    "log_info": ("info", "boolean"),
    "log_warning": ("warning", "boolean"),
    "log_error": ("error", "boolean"),
    "log_verbose_level": ("verbose", "unsigned-integer"),
    "log_format": ("style", "string"),
}
_INT32 = 1 << 32


class LoggingRoutes:
    """The logging endpoint.

    Args:
        logs: The log.
    """

    def __init__(self, logs: LogControl) -> None:
        self._logs = logs

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (get_or_post(rb"/v2/logging", Api.LOGGING, self._logging),)

    def _logging(self, request: Request, match: re.Match[bytes], exchange: Exchange) -> bytes:
        if request.method == b"POST":
            self._logs.change(_changed(self._logs.settings, load_json(request.body)))
        settings = self._logs.settings
        return document_reply(
            {"log_file": "", **{key: getattr(settings, name) for key, (name, _) in _KEYS.items()}}
        )


def _changed(settings: LogSettings, document: Any) -> LogSettings:
    """The settings with what a request asks for; null leaves a setting as it is.

    Raises:
        RequestError: It asks for what cannot be; nothing is changed then.
    """
    if not isinstance(document, dict):
        return settings
    if document.get("log_file") is not None:
        raise RequestError("log file location can not be updated through network protocol", Code.UNSUPPORTED)
    asked: dict[str, Any] = {}
    for key, (name, want) in _KEYS.items():
        value = document.get(key)
        if value is None:
            continue
        if not accepts(value, want):
            raise RequestError(f"attempt to access JSON non-{want} as {want}", Code.INTERNAL)
        asked[name] = value
    if asked.get("style", FORMATS[0]) not in FORMATS:
        raise RequestError(f"invalid argument for --log_format, got: {asked['style']}", Code.UNAVAILABLE)
    if "verbose" in asked:
        # Kept in 32 bits, as Triton keeps it.
        level = asked["verbose"] % _INT32
        asked["verbose"] = level - _INT32 if level >= _INT32 // 2 else level
    return replace(settings, **asked)
