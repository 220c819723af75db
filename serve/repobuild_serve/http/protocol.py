"""Connections: from bytes to requests and back, in order, bounded in memory and time.

A request whose header bytes were met before on any connection, and led to an inference of a known length,
skips the HTTP parser: the meaning of a header depends on nothing but its bytes. Everything else goes through
``RequestParser``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import cast

from repobuild_serve.http.exchange import Exchange
from repobuild_serve.http.host import Host
from repobuild_serve.http.parser import Request, RequestParser
from repobuild_serve.http.replies import CONTINUE, error_reply

_LOG = logging.getLogger(__name__)
_MAX_HEAD = 4096
_HEAD_END = b"\r\n\r\n"
_LINGER_SECONDS = 2
_LEAST_READ = 64 << 10
"""Bytes that a client must read within the write time-out to get more time."""


class Connection(asyncio.Protocol):
    """One client connection."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._transport: asyncio.Transport | None = None
        self._open: deque[Exchange] = deque()
        self._backlog: deque[Request] = deque()
        self._parser = RequestParser(host.limits, host.application.body_limit, host.budget)
        self._limit = host.limits.pipelined
        self._touched = host.tick
        self._head_since = 0
        self._full_since = 0
        self._unread = 0
        self._full = False
        self._paused = False
        self._ending = False
        self._advancing = False

    @property
    def gone(self) -> bool:
        """Whether nobody is there any more to answer."""
        return self._transport is None

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop when the client has connected."""
        host, self._transport = self._host, cast("asyncio.Transport", transport)
        if host.stopping or len(host.connections) >= host.limits.connections:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=host.limits.write_buffer)
        host.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop when the connection is gone; answers still to come are dropped."""
        self._host.connections.discard(self)
        self._let_go()
        self._parser.close()

    def _let_go(self) -> None:
        """Drop the answers still to come: nothing can be sent any more."""
        self._transport = None
        for exchange in self._open:
            if exchange.stream is not None:
                exchange.stream.discard()
        self._open.clear()
        self._backlog.clear()

    def eof_received(self) -> bool:
        """Called when the client sends no more; it still gets the answers it waits for."""
        transport = self._transport
        if transport is None or not (self._open or self._backlog):
            return False
        if not transport.can_write_eof():
            # TLS has no half-open connections: it is being closed, and takes nothing any more.
            self._ending = True
            self._let_go()
            return False
        if not self._ending and self._open:
            self._open[-1].plain, self._open[-1].close = False, True
        self._ending = True
        return True

    def pause_writing(self) -> None:
        """Called when the client leaves too many answers unread."""
        self._full = True
        self._full_since = self._host.tick
        if self._transport is not None:
            self._unread = self._transport.get_write_buffer_size()
        self._set_reading()

    def resume_writing(self) -> None:
        """Called when it reads again."""
        self._full = False
        self.advance()

    def data_received(self, data: bytes) -> None:
        """Called with what the client sent."""
        if self._ending:
            return
        self._touched = self._host.tick
        if self._parser.idle and not self._backlog:
            data = self._begin_known(data)
            if not data:
                return
        self._parse(data)

    # reading

    def _begin_known(self, data: bytes) -> bytes:
        """Start the requests at the front of ``data`` whose headers are known; what is left of it."""
        heads, opened = self._host.heads, self._open
        start, size = 0, len(data)
        answered = False
        while start < size and len(opened) < self._limit and not self._full:
            end = data.find(_HEAD_END, start)
            known = heads.get(data[start:end]) if end > 0 else None
            if known is None:
                break
            stop = end + 4 + known.length
            if stop > size:
                break
            exchange = Exchange(self)
            opened.append(exchange)
            response = known.begin(exchange, data[end + 4 : stop])
            if response is not None:
                exchange.reply = response
                answered = True
            start = stop
        if answered:
            self.advance()
        if not start:
            return data
        return data[start:] if start < size else b""

    def _parse(self, data: bytes) -> None:
        parser = self._parser
        head = b""
        if parser.idle:
            self._head_since = self._host.tick
            end = data.find(_HEAD_END)
            if 0 < end <= _MAX_HEAD:
                head = data[:end]
        requests = parser.feed(data)
        if requests:
            if head:
                self._host.remember(head, requests[0])
            self._head_since = self._host.tick
            self._backlog.extend(requests)
            self.advance()
        if parser.refused is not None:
            self._refuse()
        elif parser.expects_continue:
            self._invite_body()

    def _invite_body(self) -> None:
        """Ask for the body that a client holds back, once all earlier answers are written."""
        if self._open:
            # Its answer may then not be written without a look at what else there is to do.
            self._open[-1].plain = False
        elif not self._backlog and self._transport is not None:
            self._parser.expects_continue = False
            self._transport.write(CONTINUE)

    def _refuse(self) -> None:
        """Answer what came before the bytes that cannot be read, then end."""
        refused = self._parser.refused
        assert refused is not None
        self._ending = True
        exchange = Exchange(self)
        exchange.plain, exchange.close = False, True
        exchange.reply = error_reply(refused.status, refused.text) if refused.status else b""
        # Requests in the backlog come first.
        while self._backlog:
            self._begin(self._backlog.popleft())
        self._open.append(exchange)
        self.advance()

    def _begin(self, request: Request) -> None:
        exchange = Exchange(self)
        exchange.head_only = request.method == b"HEAD"
        exchange.close = not request.keep_alive or self._host.stopping
        exchange.http10 = request.http10
        exchange.keep = request.http10 and not exchange.close
        exchange.plain = not (exchange.head_only or exchange.close or exchange.keep)
        self._open.append(exchange)
        if exchange.close:
            self._ending = True
            self._backlog.clear()
        try:
            exchange.reply = self._host.application.respond(request, exchange)
        except Exception:  # noqa: BLE001 - a bug in a route must cost one request, not the server
            _LOG.exception(
                "a request failed: %s %s", request.method.decode(), request.target[:200].decode("latin-1")
            )
            exchange.reply = error_reply(500, "internal error, see the server's log")

    # writing

    def write_only(self, exchange: Exchange) -> bool:
        """Write the answer of an exchange that is the only thing the connection has to do.

        Returns:
            False, and nothing is done, if there is more; then ``completed`` must be called.
        """
        opened = self._open
        if len(opened) != 1 or self._backlog or not exchange.plain or self._transport is None or self._paused:
            return False
        assert exchange.reply is not None
        opened.clear()
        self._transport.write(exchange.reply)
        return True

    def drop(self, reason: str) -> None:
        """End the connection at once, and what is still to be sent on it."""
        _LOG.warning("a connection is dropped: %s", reason)
        for exchange in self._open:
            if exchange.stream is not None:
                exchange.stream.discard()
        if self._transport is not None:
            self._transport.abort()

    def advance(self) -> None:
        """Write the answers that are due and start the requests there is room for.

        Called by the application after it set the reply of one or more exchanges, or a stream got more.
        """
        if self._advancing:
            return
        self._advancing = True
        try:
            self._write_due()
            while self._backlog and not self._full and len(self._open) < self._limit:
                self._begin(self._backlog.popleft())
                self._write_due()
        finally:
            self._advancing = False
        if self._parser.expects_continue:
            self._invite_body()
        self._set_reading()

    def _write_due(self) -> None:
        opened, transport = self._open, self._transport
        pieces: list[bytes] = []
        close = False
        while opened and not close:
            exchange = opened[0]
            if exchange.reply is not None:
                pieces.append(exchange.bytes_to_write() if exchange.reply else b"")
            elif exchange.stream is None or self._full:
                break
            else:
                pieces.append(exchange.stream.take())
                if not exchange.stream.ended:
                    break
            opened.popleft()
            close = exchange.close
        if transport is None or transport.is_closing():
            # To write then would be logged each time.
            return
        if any(pieces):
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if self._full:
                self._unread += len(data)
            transport.write(data)
        if close:
            self._finish(transport)

    def _finish(self, transport: asyncio.Transport) -> None:
        """Close after what has been written; a client that is still sending gets a moment to read it."""
        self._open.clear()
        self._backlog.clear()
        self._ending = True
        if self._parser.refused is not None and self._parser.refused.status and transport.can_write_eof():
            self._touched = self._host.tick
            transport.write_eof()
        else:
            transport.close()

    def _set_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        pause = self._full or bool(self._backlog) or len(self._open) >= self._limit
        if pause and not self._paused:
            transport.pause_reading()
        elif self._paused and not pause:
            transport.resume_reading()
        self._paused = pause

    # time

    def check_time(self, tick: int) -> None:
        """End the connection if it has taken too long at whatever it does."""
        transport, limits = self._transport, self._host.limits
        if transport is None:
            return
        if self._full:
            over = tick - self._full_since > limits.write_seconds and not self._reads(transport, tick)
        elif self._ending:
            over = not self._open and tick - self._touched > _LINGER_SECONDS
        elif self._open or self._backlog:
            over = False
        elif self._parser.in_head:
            over = tick - self._head_since > limits.read_seconds
        elif not self._parser.idle:
            over = tick - self._touched > limits.read_seconds
        else:
            over = tick - self._touched > limits.idle_seconds
        if over:
            transport.abort()

    def _reads(self, transport: asyncio.Transport, tick: int) -> bool:
        """Whether the client has read a good part of what it was sent; if so, its time starts anew."""
        unread = transport.get_write_buffer_size()
        if unread > self._unread - _LEAST_READ:
            return False
        self._unread, self._full_since = unread, tick
        return True

    def stop(self) -> None:
        """Close now if nothing is in flight, else after the last answer."""
        if self._transport is None:
            return
        if not self._open and not self._backlog and self._parser.idle:
            self._ending = True
            self._transport.close()
            return
        if self._open and self._parser.idle and not self._backlog:
            last = self._open[-1]
            last.plain, last.close = False, True
            self._ending = True
