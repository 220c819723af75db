"""HTTP responses as bytes."""

from __future__ import annotations

from typing import Any

import orjson

from repobuild_serve.errors import Code, RequestError

STATUS = {
    Code.UNKNOWN: 400,
    Code.INTERNAL: 500,
    Code.NOT_FOUND: 404,
    Code.INVALID_ARG: 400,
    Code.UNAVAILABLE: 503,
    Code.UNSUPPORTED: 501,
    Code.ALREADY_EXISTS: 400,
    Code.CANCELLED: 400,
}
"""HTTP status by Triton error code."""

_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Not Allowed",
    408: b"Request Timeout",
    413: b"Payload Too Large",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    503: b"Service Unavailable",
}
JSON = b"application/json"
PLAIN = b"text/plain"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_KEPT = 8192


def _json_head(length: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % length


_JSON_HEADS = tuple(_json_head(length) for length in range(_KEPT))


def json_reply(body: bytes) -> bytes:
    """200 with a JSON body."""
    length = len(body)
    return (_JSON_HEADS[length] if length < _KEPT else _json_head(length)) + body


def tensor_reply(header: bytes, blobs: list[bytes]) -> bytes:
    """200 with a JSON part and the binary tensors that follow it."""
    size = len(header)
    total = size + sum(map(len, blobs))
    if total == size:
        return json_reply(header)
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
        b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n" % (size, total)
    )
    return b"".join((head, header, *blobs))


def reply(status: int, body: bytes = b"", content_type: bytes = JSON, extra: bytes = b"") -> bytes:
    """A response of any kind; ``extra`` is further header lines, each with its line end."""
    kind = b"Content-Type: %b\r\n" % content_type if body else b""
    return b"HTTP/1.1 %d %b\r\n%b%bContent-Length: %d\r\n\r\n%b" % (
        status,
        _REASONS.get(status, b"Error"),
        kind,
        extra,
        len(body),
        body,
    )


def chunked_head(status: int, content_type: bytes, *, chunked: bool = True, close: bool = False) -> bytes:
    """The head of a response whose body follows in chunks, or without them ends with the connection."""
    coding = b"Transfer-Encoding: chunked\r\n" if chunked else b""
    connection = b"Connection: close\r\n" if close else b""
    return b"HTTP/1.1 %d %b\r\n%bContent-Type: %b\r\n%b\r\n" % (
        status,
        _REASONS.get(status, b"Error"),
        connection,
        content_type,
        coding,
    )


def chunk(data: bytes) -> bytes:
    """A piece of a body that is sent in chunks; not empty, which would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunked_reply(status: int, body: bytes, *, http10: bool) -> bytes:
    """A JSON response in one chunk, as the generate route sends it; HTTP/1.0 knows no chunks."""
    if http10:
        return reply(status, body)
    return b"%b%b0\r\n\r\n" % (chunked_head(status, JSON), chunk(body))


def document_reply(document: Any) -> bytes:
    """200 with a document as JSON."""
    return json_reply(orjson.dumps(document))


def error_reply(status: int, text: str, content_type: bytes = JSON, extra: bytes = b"") -> bytes:
    """An error with Triton's body, one JSON object with the key ``error``."""
    body = orjson.dumps({"error": text.encode("utf-8", "replace").decode("utf-8")})
    return reply(status, body, content_type, extra)


def refusal(error: RequestError, request_id: str = "") -> bytes:
    """The response for a request that cannot be answered with a result."""
    return error_reply(STATUS[error.code], error.told(request_id), PLAIN if error.plain else JSON)


def with_connection(response: bytes, value: bytes) -> bytes:
    """The response with a ``Connection`` header."""
    return response.replace(b"\r\n", b"\r\nConnection: %b\r\n" % value, 1)


def without_body(response: bytes) -> bytes:
    """The response to a HEAD request."""
    return response[: response.index(b"\r\n\r\n") + 4]
