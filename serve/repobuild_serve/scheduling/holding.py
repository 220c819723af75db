"""How many requests a batcher waits for before its first batch (Triton contract, delayed schedulers).

Tests set this to have a queue of a known length, whatever the speed of machine and client.
"""

from __future__ import annotations

from collections.abc import Mapping

from repobuild_serve.errors import LoadError

VARIABLE = "TRITONSERVER_DELAY_SCHEDULER"


def requests_to_hold(environment: Mapping[str, str]) -> int:
    """The number that the environment asks for; 0 if it asks for none.

    Raises:
        LoadError: It is no number.
    """
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return 0
    try:
        return max(0, int(text))
    except ValueError as exc:
        raise LoadError(f"environment variable {VARIABLE} must be a number of requests, got: {text}") from exc
