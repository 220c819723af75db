"""Responses that nobody waits for: a backend of somebody else's may send more than it should."""

from __future__ import annotations

import logging

from repobuild_serve.core.ticket import Response

_LOG = logging.getLogger(__name__)
_REMEMBERED = 1024


class Answered:
    """Requests that have had the one answer they get, although their model said that more would follow."""

    def __init__(self) -> None:
        self._models: dict[int, str] = {}

    def note(self, number: int, model: str) -> None:
        """Remember which model a request was for, until its last response; the memory is bounded."""
        if len(self._models) >= _REMEMBERED:
            del self._models[next(iter(self._models))]
        self._models[number] = model

    def drop(self, response: Response) -> None:
        """Log a response to a request that waits no more, unless it only says that no further one follows."""
        model = self._models.get(response.number, "")
        if response.final:
            self._models.pop(response.number, None)
        if not response.void:
            log_dropped(response, model)


def log_dropped(response: Response, model: str = "") -> None:
    """Say that a response is dropped, and of which model, if that is known."""
    which = f"model {model}" if model else "a model"
    what = f"an error ({response.error.text})" if response.error is not None else "outputs"
    _LOG.error(
        "%s sent a further response, with %s, to request number %d, which has had its answer: it is dropped",
        which,
        what,
        response.number,
    )
