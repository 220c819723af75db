"""What is logged and how: set at the start, and changed while the server runs (Triton contract, logging)."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass

FORMATS = ("default", "ISO8601")
_LINES = {
    "default": ("%(asctime)s %(levelname).1s %(message)s", None),
    "ISO8601": (
        "%(asctime)s %(levelname).1s %(process)d %(filename)s:%(lineno)d] %(message)s",
        "%Y-%m-%dT%H:%M:%SZ",
    ),
}


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is logged and how.

    Attributes:
        info: Whether messages of the level INFO are logged.
        warning: Whether messages of the level WARNING are logged.
        error: Whether messages of the level ERROR and above are logged.
        verbose: Whether those below INFO are: from 1 on.
        style: Form of a line, one of ``FORMATS``.
    """

    info: bool = True
    warning: bool = True
    error: bool = True
    verbose: int = 0
    style: str = "default"

    def passes(self, level: int) -> bool:
        """Whether a message of this level is logged."""
        if level >= logging.ERROR:
            return self.error
        if level >= logging.WARNING:
            return self.warning
        return self.info if level >= logging.INFO else self.verbose > 0


class LogControl:
    """The log of this process.

    Args:
        settings: The settings at the start.

    Attributes:
        settings: The settings now.
    """

    def __init__(self, settings: LogSettings | None = None) -> None:
        self.settings = settings or LogSettings()
        self._handler: logging.Handler | None = None

    def install(self) -> None:
        """Send the messages of all loggers to standard error, in place of where they went before."""
        self._handler = logging.StreamHandler(sys.stderr)
        self._handler.addFilter(lambda record: self.settings.passes(record.levelno))
        logging.basicConfig(handlers=[self._handler], force=True)
        self.change(self.settings)

    def change(self, settings: LogSettings) -> None:
        """Log by other settings from now on."""
        self.settings = settings
        if self._handler is None:
            return
        line, date = _LINES[settings.style]
        formatter = logging.Formatter(line, date)
        if date is not None:
            formatter.converter = time.gmtime
        self._handler.setFormatter(formatter)
        logging.getLogger().setLevel(logging.DEBUG if settings.verbose > 0 else logging.INFO)
