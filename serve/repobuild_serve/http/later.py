"""Answers that are not there at once, of routes other than inference."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from repobuild_serve.errors import RequestError
from repobuild_serve.http.exchange import Exchange
from repobuild_serve.http.replies import error_reply, refusal

_LOG = logging.getLogger(__name__)


class Later:
    """Waits for answers and sends them. What was begun goes on when the client has gone."""

    def __init__(self) -> None:
        # The loop itself holds tasks weakly only.
        self._tasks: set[asyncio.Task[None]] = set()

    def complete(self, exchange: Exchange, answer: Coroutine[Any, Any, bytes]) -> None:
        """Complete an exchange with what a coroutine gives."""
        task = asyncio.get_running_loop().create_task(_complete(exchange, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _complete(exchange: Exchange, answer: Coroutine[Any, Any, bytes]) -> None:
    try:
        exchange.reply = await answer
    except RequestError as exc:
        exchange.reply = refusal(exc)
    except Exception:  # noqa: BLE001 - a bug in a route must cost one request, not the server
        _LOG.exception("a request failed")
        exchange.reply = error_reply(500, "internal error, see the server's log")
    if not exchange.connection.write_only(exchange):
        exchange.connection.advance()
