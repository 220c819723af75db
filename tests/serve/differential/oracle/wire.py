"""One HTTP request, and its answer read whole."""

from __future__ import annotations

import http.client
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """What is sent. ``body`` is the octets; a tuple of pieces is sent chunked."""

    method: str
    path: str
    body: bytes | tuple[bytes, ...] | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What came back; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def as_data(self) -> dict[str, Any]:
        """For printing and recording."""
        return {"status": self.status, "headers": self.headers, "body": self.body.decode("latin-1")}


def send(port: int, request: Request, timeout: float = 60) -> Answer:
    """Ask on a fresh connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        if isinstance(request.body, tuple):
            connection.request(
                request.method, request.path, iter(request.body), request.headers, encode_chunked=True
            )
        else:
            connection.request(request.method, request.path, request.body, request.headers)
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read())
    finally:
        connection.close()
