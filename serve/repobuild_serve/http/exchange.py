"""A request on its way through the application, and what an application is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from repobuild_serve.http.parser import Request
from repobuild_serve.http.replies import with_connection, without_body

if TYPE_CHECKING:
    from repobuild_serve.http.protocol import Connection
    from repobuild_serve.http.streaming import Stream


class Exchange:
    """A request that has been read and the place its answer will take.

    Attributes:
        connection: Where the answer goes.
        reply: The answer, once there is one.
        stream: The answer, if it is sent piece by piece.
        plain: Whether the answer is written as it is: HTTP/1.1, keep-alive, with body.
        close: Whether the connection ends after the answer.
        keep: Whether to tell an HTTP/1.0 client that the connection stays open.
        head_only: Whether the body is left out.
        http10: Whether the client speaks HTTP/1.0, which knows no chunks.
        work: What the application keeps with the request.
    """

    # Class attributes, so that an exchange costs one assignment; few are ever given another value.
    reply: bytes | None = None
    stream: Stream | None = None
    plain = True
    close = False
    keep = False
    head_only = False
    http10 = False
    work: Any = None

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def bytes_to_write(self) -> bytes:
        """The answer with what the connection's state asks for."""
        response = self.reply
        assert response is not None
        if self.plain:
            return response
        if self.head_only:
            response = without_body(response)
        if self.close:
            return with_connection(response, b"close")
        return with_connection(response, b"keep-alive") if self.keep else response


@dataclass(frozen=True, slots=True)
class KnownHead:
    """What a header that was met before means.

    Attributes:
        length: Length of the body.
        begin: Starts the request; gives the answer if it is there at once.
    """

    length: int
    begin: Callable[[Exchange, bytes], bytes | None]


class Application(Protocol):
    """What answers the requests of a listener."""

    def respond(self, request: Request, exchange: Exchange) -> bytes | None:
        """Answer a request, or return None and complete the exchange later."""
        ...

    def known_head(self, request: Request) -> KnownHead | None:
        """What to remember of a request's header, if all that matters is in it."""
        ...

    def body_limit(self, target: bytes, headers: dict[bytes, bytes]) -> tuple[int, str]:
        """See ``BodyLimit``."""
        ...
