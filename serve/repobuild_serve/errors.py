"""Everything the server can refuse, as exceptions that carry a code and a text.

::

    ServeError
    ├── RequestError   a client's request is answered with this
    ├── ConfigError    a model folder cannot be read ("poll" failure of the contract)
    ├── LoadError      a readable model cannot be loaded
    └── StartError     the server itself cannot start

Nothing here knows HTTP: ``repobuild_serve.http.replies`` maps codes to status lines.
"""

from __future__ import annotations

import enum


class Code(enum.Enum):
    """Triton's error codes; the value is the name as it stands in texts."""

    UNKNOWN = "Unknown"
    INTERNAL = "Internal"
    NOT_FOUND = "Not found"
    INVALID_ARG = "Invalid argument"
    UNAVAILABLE = "Unavailable"
    UNSUPPORTED = "Unsupported"
    ALREADY_EXISTS = "Already exists"
    CANCELLED = "Cancelled"


class ServeError(Exception):
    """Base of everything this package raises on purpose."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class RequestError(ServeError):
    """Raised when a request cannot be answered with a result.

    Args:
        text: What the client is told.
        code: Triton error code.
        tagged: Whether the text starts with the request id (prefix P of the Triton contract, HTTP errors).
        plain: Whether the error arose outside body parsing and is sent as ``text/plain``.
    """

    def __init__(
        self, text: str, code: Code = Code.INVALID_ARG, *, tagged: bool = False, plain: bool = False
    ) -> None:
        super().__init__(text)
        self.code = code
        self.tagged = tagged
        self.plain = plain

    def told(self, request_id: str) -> str:
        """The text as the client of request ``request_id`` (may be empty) sees it."""
        return f"[request id: {request_id or '<id_unknown>'}] {self.text}" if self.tagged else self.text


def queue_full() -> RequestError:
    """The error for a request that is not taken because too many wait (E26 of the Triton contract)."""
    return RequestError("Exceeds maximum queue size", Code.UNAVAILABLE, tagged=True)


class ConfigError(ServeError):
    """Raised when a model folder or its config.pbtxt is not usable; the model is not tracked."""


class LoadError(ServeError):
    """Raised when a model with a usable config cannot be brought up; the version becomes UNAVAILABLE."""

    def __init__(self, text: str, code: Code = Code.INVALID_ARG) -> None:
        super().__init__(text)
        self.code = code


class StartError(ServeError):
    """Raised when the server cannot start.

    Args:
        reference: Kebab-case code of the situation.
        text: What happened.
        evidence: Lines that show it.
        hint: What to do next.
        exit_code: Exit status of the process.
    """

    def __init__(
        self, reference: str, text: str, *, evidence: tuple[str, ...] = (), hint: str = "", exit_code: int
    ) -> None:
        super().__init__(text)
        self.reference = reference
        self.evidence = evidence
        self.hint = hint
        self.exit_code = exit_code

    def render(self) -> str:
        """The message as it is printed: what happened, the evidence indented, the hint."""
        lines = [f"error[{self.reference}]: {self.text}"]
        lines += [f"  {line}" for piece in self.evidence for line in piece.splitlines()]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def for_model(self, name: str) -> LoadError:
        """The same as why a model cannot be loaded, where the server goes on without it."""
        evidence = f" ({'; '.join(self.evidence)})" if self.evidence else ""
        hint = f"; {self.hint}" if self.hint else ""
        return LoadError(f"failed to load model '{name}': {self.text}{evidence}{hint}", Code.UNAVAILABLE)
