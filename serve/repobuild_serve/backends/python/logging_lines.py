"""Lines that models write with ``Logger``, in the server's log."""

from __future__ import annotations

import logging
from typing import Any

_LOG = logging.getLogger(__name__)
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR, "verbose": logging.DEBUG}


def log_line(name: str, head: Any) -> None:
    """Write a line.

    Args:
        name: Who writes it.
        head: The message that holds it.
    """
    _LOG.log(_LEVELS[head["level"]], "%s: %s", name, head["text"])
