"""What is known of a request while it is read."""

from __future__ import annotations

from dataclasses import dataclass

from repobuild_serve.errors import RequestError


@dataclass(slots=True)
class Reading:
    """A request being read.

    Attributes:
        arrived: ``time.monotonic_ns()`` at its arrival.
        request_id: The client's id, as soon as the text has been parsed.
        legacy: Whether the answers are those of 24.10 where they differ from current ones.
    """

    arrived: int
    request_id: str = ""
    legacy: bool = False


def check_json_size(size: int, limit: int) -> None:
    """Refuse a JSON text that is too long.

    Raises:
        RequestError: It is (V8 of the Triton contract).
    """
    if size > limit:
        raise RequestError(json_too_large(str(size), limit))


def json_too_large(size: str, limit: int) -> str:
    """What a client is told whose JSON text is too long."""
    return (
        f"request JSON size of {size} bytes exceeds the maximum allowed input size of {limit} bytes. "
        "Use --http-max-input-size to increase the limit."
    )
