"""The inference route: from a body to a ticket, and from a batch's answer to the responses."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from repobuild_serve.core.model import ModelVersion
from repobuild_serve.core.router import Router
from repobuild_serve.core.statistics import Timing
from repobuild_serve.core.surplus import Answered
from repobuild_serve.core.ticket import Answer, Response, Scalar
from repobuild_serve.errors import Code, RequestError, queue_full
from repobuild_serve.http.budget import BUSY, Budget
from repobuild_serve.http.compression import chosen_encoding, compress, decompress
from repobuild_serve.http.exchange import Exchange
from repobuild_serve.http.limits import Limits
from repobuild_serve.http.parser import Request
from repobuild_serve.http.protocol import Connection
from repobuild_serve.http.replies import error_reply, json_reply, refusal, reply, tensor_reply
from repobuild_serve.profile import Profile
from repobuild_serve.wire.json_fast import reader
from repobuild_serve.wire.json_large import LARGE, large_reader
from repobuild_serve.wire.json_request import read_known_layout, read_request
from repobuild_serve.wire.plan import Asked
from repobuild_serve.wire.reading import Reading
from repobuild_serve.wire.response import BatchResponses
from repobuild_serve.wire.single_response import single_response

_LOG = logging.getLogger(__name__)
_HUGE = 1 << 20
_INTEGER = re.compile(rb"\s*([+-]?[0-9]+)")
_INT32 = 1 << 31
_MOST_DIGITS = 1000
_NONE = "expected a single response, got 0"


class Endpoint:
    """One model version as the inference route sees it."""

    def __init__(self, version: ModelVersion) -> None:
        self.version = version
        self.plan = version.plan
        self.read_usual = reader(self.plan)
        self.read_large = large_reader(self.plan, self.read_usual)
        self.submit = version.submit


Work = tuple[Endpoint, Asked, bytes, int]
"""Kept of a request while its model runs: model, how the answer is wanted, its encoding, body size."""


class InferService:
    """Turns requests into tickets and what comes of them into HTTP responses: the front end of inference.

    Args:
        limits: Bounds of the HTTP front end.
        budget: Body bytes that may be held.
        router: Where to register; this must be the first front end, whose numbers start at 0.
        profile: Which release's answers are given where releases differ.
    """

    def __init__(self, limits: Limits, budget: Budget, router: Router, profile: Profile) -> None:
        self._number = router.register(self)
        self._limits = limits
        self._legacy = profile.legacy
        self._budget = budget
        self._most_waiting = limits.queued_requests
        self._waiting: dict[int, Exchange] = {}
        self._endpoints: dict[ModelVersion, Endpoint] = {}
        self._answered = Answered()

    def endpoint(self, version: ModelVersion) -> Endpoint:
        """The endpoint of a model version.

        Raises:
            RequestError: The model may answer a request several times (E25 of the Triton contract).
        """
        found = self._endpoints.get(version)
        if found is None:
            if version.settings.decoupled:
                raise RequestError(
                    "HTTP end point doesn't support models with decoupled transaction policy",
                    Code.UNSUPPORTED,
                    plain=True,
                )
            found = self._endpoints[version] = Endpoint(version)
        return found

    def forget(self, versions: Iterable[ModelVersion]) -> None:
        """Drop the endpoints of versions that serve no longer; requests in flight keep theirs."""
        for version in versions:
            self._endpoints.pop(version, None)

    def start(
        self, request: Request, endpoint: Endpoint, forwarded: Mapping[str, Scalar], exchange: Exchange
    ) -> bytes | None:
        """Start an inference with all that headers may ask for; the answer if it is an error."""
        headers = request.headers
        try:
            encoding = headers.get(b"content-encoding", b"identity")
            body = decompress(request.body, encoding, self._limits.input_size, legacy=self._legacy)
            length = header_length(headers, len(body), legacy=self._legacy)
        except RequestError as exc:
            extra = b"Accept-Encoding: gzip, deflate\r\n" if exc.code is Code.UNSUPPORTED else b""
            return error_reply(501 if extra else 400, exc.text, b"text/plain", extra)
        encoding = chosen_encoding(headers.get(b"accept-encoding", b""))
        return self.begin(endpoint, length, encoding, forwarded, exchange, body)

    def begin(
        self,
        endpoint: Endpoint,
        length: int | None,
        encoding: bytes,
        forwarded: Mapping[str, Scalar],
        exchange: Exchange,
        body: bytes,
    ) -> bytes | None:
        """Start an inference.

        Args:
            endpoint: The model.
            length: Length of the JSON part; None if the body is JSON, 0 if it is one raw tensor.
            encoding: How to compress the response; empty for not at all.
            forwarded: Parameters that the headers make.
            exchange: Where the answer goes.
            body: Uncompressed body.

        Returns:
            The answer if there is one already, which is then an error.
        """
        arrived = time.monotonic_ns()
        reading: Reading | None = None
        try:
            parsed = None
            size = len(body)
            if size > _HUGE and length != 0:
                endpoint.plan.check_values(body if length is None else body[:length])
            if length is None:
                read = endpoint.read_usual if size < LARGE else endpoint.read_large
                parsed = read(body, arrived)
            elif length:
                layout = endpoint.plan.layouts.get(body[:length])
                if layout is not None:
                    parsed = read_known_layout(layout, body, length, arrived)
            if parsed is None:
                reading = Reading(arrived, legacy=self._legacy)
                parsed = read_request(endpoint.plan, body, length, reading, self._limits.input_size)
            ticket, asked = parsed
            if forwarded:
                context = asked.context
                context = replace(context, parameters={**context.parameters, **forwarded})
                ticket.context, asked = context, replace(asked, context=context)
            waiting, budget = self._waiting, self._budget
            if len(waiting) >= self._most_waiting:
                return refusal(queue_full(), asked.request_id)
            if not budget.take(size):
                return refusal(RequestError(BUSY, Code.UNAVAILABLE), asked.request_id)
            self._number = ticket.number = number = self._number + 1
            exchange.work = (endpoint, asked, encoding, size)
            waiting[number] = exchange
            try:
                endpoint.submit(ticket)
            except BaseException as exc:
                # Nothing comes of it any more, whatever it was.
                del waiting[number]
                budget.give(size)
                if isinstance(exc, RequestError):
                    return refusal(exc, asked.request_id)
                raise
        except RequestError as exc:
            return refusal(exc, reading.request_id if reading else "")
        except Exception:  # noqa: BLE001 - a bug must cost one request, not the connection's others
            _LOG.exception("model %s: a request could not be taken", endpoint.plan.name)
            return error_reply(500, "internal error, see the server's log")
        return None

    def respond(self, response: Response) -> None:
        """Send the response of a model that answers request by request: its first. See ``Sink.respond``."""
        exchange = self._waiting.pop(response.number, None)
        if exchange is None:
            self._answered.drop(response)
            return
        endpoint, asked, encoding, size = exchange.work
        self._budget.give(size)
        if not response.final:
            self._answered.note(response.number, endpoint.plan.name)
        if response.error is not None:
            exchange.reply = refusal(response.error, asked.request_id)
        elif response.void:
            exchange.reply = refusal(RequestError(_NONE, Code.INTERNAL, plain=True), asked.request_id)
        else:
            try:
                header, blobs = single_response(endpoint.plan, asked, response)
                exchange.reply = (
                    _encoded(header, blobs, encoding) if encoding else tensor_reply(header, blobs)
                )
            except RequestError as exc:
                exchange.reply = refusal(exc, asked.request_id)
            except Exception:  # noqa: BLE001 - a bug in writing must cost one request, not the server
                _LOG.exception("model %s: a response could not be written", endpoint.plan.name)
                exchange.reply = error_reply(500, "internal error, see the server's log")
        if not exchange.connection.write_only(exchange):
            exchange.connection.advance()

    def ran(self, number: int, timing: Timing) -> None:
        """See ``Sink.ran``: no answer tells."""

    def deliver(self, answer: Answer) -> None:
        """Send the answer of a batch to the clients it came from. See ``Sink.deliver``."""
        pop = self._waiting.pop
        exchanges = [pop(number) for number in answer.numbers]
        self._budget.give(sum([exchange.work[3] for exchange in exchanges]))
        if answer.error is not None:
            for exchange in exchanges:
                exchange.reply = refusal(answer.error, exchange.work[1].request_id)
        else:
            self._write(answer, exchanges)
        # A connection with several answers gets them in one write.
        several: dict[Connection, None] = {}
        for exchange in exchanges:
            if not exchange.connection.write_only(exchange):
                several[exchange.connection] = None
        for connection in several:
            connection.advance()

    def _write(self, answer: Answer, exchanges: list[Exchange]) -> None:
        responses = BatchResponses(exchanges[0].work[0].plan, answer)
        start = 0
        for exchange, rows in zip(exchanges, answer.rows, strict=True):
            stop = start + rows
            work: Work = exchange.work
            endpoint, asked, encoding, _ = work
            try:
                if encoding:
                    exchange.reply = _compressed(responses, start, stop, asked, encoding)
                elif asked.wanted is None:
                    exchange.reply = json_reply(responses.json(start, stop, asked.request_id))
                else:
                    exchange.reply = tensor_reply(
                        *responses.mixed(start, stop, asked.request_id, asked.wanted)
                    )
            except Exception:  # noqa: BLE001 - a bug in writing must cost one request, not its batch
                _LOG.exception("model %s: a response could not be written", endpoint.plan.name)
                exchange.reply = error_reply(500, "internal error, see the server's log")
            start = stop


def header_length(headers: dict[bytes, bytes], body_length: int, *, legacy: bool = False) -> int | None:
    """The length of the JSON part that a request states; None if it states none.

    Args:
        headers: Value by lower-case name.
        body_length: Length of the uncompressed body.
        legacy: Whether what is no number counts as 0 (V5 of the Triton contract).

    Raises:
        RequestError: It is no number (V5) or out of range (E24 of the Triton contract).
    """
    stated = headers.get(b"inference-header-content-length")
    if stated is None:
        return None
    text = stated.decode("latin-1")
    found = _INTEGER.match(stated)
    if found is None:
        if legacy:
            return 0
        raise RequestError(f"Unable to parse Inference-Header-Content-Length, got: {text}", plain=True)
    # What follows the number is passed over, as with Triton.
    length = int(found[1]) if len(found[1]) <= _MOST_DIGITS else _INT32
    if not (legacy or -_INT32 <= length < _INT32):
        raise RequestError(
            f"Unable to parse Inference-Header-Content-Length, value is out of range [ {-_INT32}, "
            f"{_INT32 - 1} ], got: {text}",
            plain=True,
        )
    if length < 0 or length > body_length:
        raise RequestError(
            f"inference header size should be in range (0, {body_length}), got: {text}", plain=True
        )
    return length


def _compressed(responses: BatchResponses, start: int, stop: int, asked: Asked, encoding: bytes) -> bytes:
    if asked.wanted is None:
        return _encoded(responses.json(start, stop, asked.request_id), [], encoding)
    return _encoded(*responses.mixed(start, stop, asked.request_id, asked.wanted), encoding)


def _encoded(header: bytes, blobs: list[bytes], encoding: bytes) -> bytes:
    body = compress(b"".join((header, *blobs)), encoding)
    extra = b"Content-Encoding: %b\r\n" % encoding
    if any(blobs):
        extra += b"Inference-Header-Content-Length: %d\r\n" % len(header)
        return reply(200, body, b"application/octet-stream", extra)
    return reply(200, body, b"application/json", extra)
