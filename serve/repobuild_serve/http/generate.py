"""The generate routes: a front end for models that send any number of responses (Triton contract)."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import orjson

from repobuild_serve.core.model import ModelVersion
from repobuild_serve.core.router import Router
from repobuild_serve.core.statistics import Timing
from repobuild_serve.core.surplus import log_dropped
from repobuild_serve.core.ticket import Answer, Response, responses_of
from repobuild_serve.errors import Code, RequestError, queue_full
from repobuild_serve.http.budget import BUSY, Budget
from repobuild_serve.http.exchange import Exchange
from repobuild_serve.http.limits import Limits
from repobuild_serve.http.parser import Request
from repobuild_serve.http.replies import JSON, STATUS, chunked_reply, error_reply
from repobuild_serve.http.streaming import Stream
from repobuild_serve.profile import Profile
from repobuild_serve.wire.generate_request import read_generate
from repobuild_serve.wire.generate_response import generate_document
from repobuild_serve.wire.plan import InferPlan
from repobuild_serve.wire.reading import Reading

_LOG = logging.getLogger(__name__)
_LARGE = 1 << 20
_EVENTS = b"text/event-stream; charset=utf-8"
_IDENTITY = frozenset({b"", b"identity"})
_NOT_ONE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates "
    "various number of responses"
)


@dataclass(slots=True, eq=False)
class _Call:
    """A request that is not done.

    Attributes:
        exchange: Where the answer goes.
        plan: The model.
        request_id: The client's id; empty if none.
        size: Bytes of its body.
        streaming: Whether each response is sent at once.
        status: HTTP status, fixed by the first response.
        count: Responses so far.
        document: The first response, where only one is expected.
        stream: The answer of a streaming call, from the first response on.
    """

    exchange: Exchange
    plan: InferPlan
    request_id: str
    size: int
    streaming: bool
    status: int = 200
    count: int = 0
    document: bytes = b""
    stream: Stream | None = None


class GenerateService:
    """Turns generate requests into tickets and each response to them into JSON or a server-sent event.

    Args:
        limits: Bounds of the HTTP front end.
        budget: Body bytes that may be held.
        router: Where to register.
        profile: Which release's answers are given where releases differ.
    """

    def __init__(self, limits: Limits, budget: Budget, router: Router, profile: Profile) -> None:
        self._number = router.register(self)
        self._limits = limits
        self._budget = budget
        self._legacy = profile.legacy
        self._waiting: dict[int, _Call] = {}

    def start(
        self, request: Request, version: ModelVersion, exchange: Exchange, *, streaming: bool
    ) -> bytes | None:
        """Start a request; the answer if it is an error."""
        reading = Reading(time.monotonic_ns(), legacy=self._legacy)
        try:
            self._submit(request, version, exchange, reading, streaming=streaming)
        except RequestError as exc:
            return error_reply(STATUS[exc.code], exc.told(reading.request_id), JSON)
        return None

    def _submit(
        self,
        request: Request,
        version: ModelVersion,
        exchange: Exchange,
        reading: Reading,
        *,
        streaming: bool,
    ) -> None:
        body, plan = request.body, version.plan
        if request.headers.get(b"content-encoding", b"") not in _IDENTITY:
            raise RequestError("Unsupported content-encoding, only 'identity' is supported.")
        if len(body) > _LARGE:
            plan.check_values(body)
        ticket, asked = read_generate(plan, body, reading, self._limits.input_size)
        if len(self._waiting) >= self._limits.queued_requests:
            raise queue_full()
        if not self._budget.take(len(body)):
            raise RequestError(BUSY, Code.UNAVAILABLE)
        self._number = ticket.number = number = self._number + 1
        self._waiting[number] = _Call(exchange, plan, asked.request_id, len(body), streaming)
        try:
            version.submit(ticket)
        except BaseException:
            # Nothing comes of it any more, whatever it was.
            del self._waiting[number]
            self._budget.give(len(body))
            raise

    def ran(self, number: int, timing: Timing) -> None:
        """See ``Sink.ran``: no answer tells."""

    def deliver(self, answer: Answer) -> None:
        """See ``Sink.deliver``."""
        for response in responses_of(answer):
            self.respond(response)

    def respond(self, response: Response) -> None:
        """See ``Sink.respond``."""
        call = self._waiting.get(response.number)
        if call is None:
            log_dropped(response)
            return
        if response.final:
            del self._waiting[response.number]
            self._budget.give(call.size)
        if call.exchange.connection.gone:
            return
        document = b""
        if not response.void:
            document = self._document(call, response)
            call.count += 1
        if call.streaming:
            self._send_event(call, document, final=response.final)
            return
        if call.count == 1 and not response.void:
            call.document = document
        if response.final:
            if call.count != 1:
                call.document = _error(_NOT_ONE)
            call.exchange.reply = chunked_reply(call.status, call.document, http10=call.exchange.http10)
            call.exchange.connection.advance()

    def _send_event(self, call: _Call, document: bytes, *, final: bool) -> None:
        if call.stream is None:
            call.stream = Stream(call.exchange, call.status, _EVENTS, self._budget, self._limits.stream_held)
        if document:
            call.stream.send(b"data: %b\n\n" % document)
        if final:
            call.stream.end()

    def _document(self, call: _Call, response: Response) -> bytes:
        """The JSON of a response or error; the first one of a call fixes its status."""
        error = response.error
        if error is None:
            try:
                return generate_document(call.plan, call.request_id, response)
            except RequestError as exc:
                error = exc
            except Exception:  # noqa: BLE001 - a bug in writing must cost one response, not the server
                _LOG.exception("model %s: a response could not be written", call.plan.name)
                error = RequestError("internal error, see the server's log", Code.INTERNAL)
        if call.count == 0:
            # 24.10 had one status for all errors of models.
            call.status = 400 if self._legacy else STATUS[error.code]
        return _error(error.told(call.request_id))


def _error(text: str) -> bytes:
    return orjson.dumps({"error": text.encode("utf-8", "replace").decode("utf-8")})
