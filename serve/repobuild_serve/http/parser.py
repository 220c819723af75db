"""Bytes of a connection to requests, with every size bounded as it grows."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Protocol

import httptools

from repobuild_serve.http.budget import BUSY, Budget
from repobuild_serve.http.limits import Limits

_LOG = logging.getLogger(__name__)
_MAX_LENGTH_DIGITS = 18
_FIELD_COST = 32
"""What a header field counts for beside its bytes, as many short ones take much memory."""
_HEADER_TOO_LARGE = "request header is too large"


@dataclass(slots=True, eq=False)
class Request:
    """One HTTP request.

    Attributes:
        method: Method, in capitals.
        target: Path and query as sent.
        headers: Value by lower-case name; of repeated fields the last counts.
        fields: Every header field as sent.
        body: The body, after removal of the transfer coding.
        keep_alive: Whether the connection stays open after the answer.
        http10: Whether the client speaks HTTP/1.0.
    """

    method: bytes = b""
    target: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    fields: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    keep_alive: bool = True
    http10: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a connection cannot go on: status and text, or status 0 for bytes that are no HTTP."""

    status: int
    text: str = ""


class BodyLimit(Protocol):
    """Tells how long the body of a request may be, from its target and headers."""

    def __call__(self, target: bytes, headers: dict[bytes, bytes]) -> tuple[int, str]:
        """Largest size in bytes, and the text for a larger body; ``{size}`` stands for its size."""
        ...


class _Stop(Exception):
    pass


class RequestParser:
    """Parses the requests of one connection.

    Attributes:
        idle: Whether the next byte starts a new request.
        in_head: Whether a request line or header is incomplete.
        expects_continue: Whether the client waits for ``100 Continue`` before it sends the body.
        refused: Set when nothing more can be parsed.
    """

    def __init__(self, limits: Limits, body_limit: BodyLimit, budget: Budget) -> None:
        self.idle = True
        self.in_head = False
        self.expects_continue = False
        self.refused: Refused | None = None
        self._limits = limits
        self._body_limit = body_limit
        self._budget = budget
        self._taken = 0
        self._parser: Any = httptools.HttpRequestParser(self)
        self._done: list[Request] = []
        self._request = Request()
        self._pieces: list[bytes] = []
        self._size = 0
        self._allowed = (0, "")
        self._head_size = 0
        self._chunks = 0
        self._length = 0
        self._bare_left = 0

    def feed(self, data: bytes) -> list[Request]:
        """Parse the next bytes; the requests that became complete. Look at ``refused`` afterwards."""
        self._done = []
        head_of = self._request if self.in_head else None
        rest = data
        while rest and self.refused is None:
            try:
                if self._bare_left:
                    rest = self._take_bare_body(rest)
                    continue
                self._parser.feed_data(rest)
                rest = b""
            except httptools.HttpParserUpgrade as exc:
                # An upgrade is not offered: the request is served and what follows is parsed afresh.
                self._parser = httptools.HttpRequestParser(self)
                rest = rest[exc.args[0] :]
            except (httptools.HttpParserCallbackError, _Stop):
                if self.refused is None:
                    _LOG.exception("a request could not be parsed")
                    self.refused = Refused(500, "internal error, see the server's log")
            except httptools.HttpParserError:
                self.refused = Refused(0)
        if self.in_head and head_of is self._request:
            self._head_size += len(data)
            self._check_head()
        done, self._done = self._done, []
        return done

    def on_message_begin(self) -> None:
        """Called by the parser at the start of a request."""
        self.idle = False
        self.in_head = True
        self._request = Request()
        self._pieces = []
        self._size = self._head_size = self._chunks = self._length = 0

    def on_url(self, url: bytes) -> None:
        """Called with the target, possibly in pieces."""
        self._head_size += len(url)
        if self._head_size > self._limits.header_size:
            self._refuse(431, _HEADER_TOO_LARGE)
        self._request.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called for each header field, and for each trailer field of a chunked body."""
        self._head_size += len(name) + len(value) + _FIELD_COST
        if self._head_size > self._limits.header_size:
            self._refuse(431, _HEADER_TOO_LARGE)
        if self.in_head:
            self._request.headers[name.lower()] = value
            self._request.fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Called when the body starts."""
        self.in_head = False
        request = self._request
        request.method = self._parser.get_method()
        request.keep_alive = self._parser.should_keep_alive()
        request.http10 = self._parser.get_http_version() == "1.0"
        self._allowed = self._body_limit(request.target, request.headers)
        length = request.headers.get(b"content-length", b"0")
        if len(length) > _MAX_LENGTH_DIGITS or int(length) > self._allowed[0]:
            self._refuse(400, self._allowed[1].format(size=length.decode("latin-1")))
        chunked = b"transfer-encoding" in request.headers
        if chunked:
            codings = [value for name, value in request.fields if name.lower() == b"transfer-encoding"]
            if [coding.strip().lower() for coding in codings] != [b"chunked"]:
                self._refuse(501, "the only transfer coding that is served is chunked")
        if chunked and self._parser.should_upgrade():
            self._refuse(400, "a request with a chunked body cannot ask for an upgrade")
        self._length = 0 if chunked else int(length)
        self.expects_continue = request.headers.get(b"expect", b"").lower() == b"100-continue"

    def on_chunk_header(self) -> None:
        """Called for each chunk of a chunked body."""
        self._chunks += 1
        if self._chunks > self._limits.chunks:
            self._refuse(
                400,
                f"Chunked request body exceeds maximum of {self._limits.chunks} non-empty chunks. "
                "Send fewer or larger HTTP chunks.",
            )

    def on_body(self, body: bytes) -> None:
        """Called with each piece of the body."""
        self.expects_continue = False
        self._size += len(body)
        if self._size > self._allowed[0]:
            self._refuse(400, self._allowed[1].format(size=f"more than {self._allowed[0]}"))
        self._hold(body)

    def on_message_complete(self) -> None:
        """Called at the end of a request; at the end of its header if it asks for an upgrade."""
        self._bare_left = max(0, self._length - self._size)
        if not self._bare_left:
            self._complete()

    def _take_bare_body(self, data: bytes) -> bytes:
        """Take the body of a request that the parser has left because of an upgrade; what follows it."""
        piece = data[: self._bare_left]
        self._bare_left -= len(piece)
        self._hold(piece)
        if not self._bare_left:
            self._complete()
        return data[len(piece) :]

    def _hold(self, piece: bytes) -> None:
        if not self._budget.take(len(piece)):
            self._refuse(503, BUSY)
        self._taken += len(piece)
        self._pieces.append(piece)

    def close(self) -> None:
        """Let go of everything; the connection is gone. Nothing may be fed afterwards."""
        self._release()
        # The parser and its callbacks hold each other.
        self._parser = None

    def _release(self) -> None:
        self._budget.give(self._taken)
        self._taken = 0
        self._pieces = []

    def _complete(self) -> None:
        self.idle = True
        self.expects_continue = False
        request = self._request
        pieces = self._pieces
        request.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._release()
        self._request = Request()
        self._done.append(request)

    def _check_head(self) -> None:
        # The parser keeps an unfinished field to itself, so its bytes are counted as they are fed.
        if self._head_size > self._limits.header_size and self.refused is None:
            self.refused = Refused(431, _HEADER_TOO_LARGE)

    def _refuse(self, status: int, text: str) -> None:
        self.refused = Refused(status, text)
        raise _Stop
