"""``triton_python_backend_utils.Logger``: lines for the server's log."""

from __future__ import annotations

import enum
import sys

from repobuild_serve.python_child import current


class LogLevel(enum.Enum):
    """How much a line matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    VERBOSE = "verbose"


class Logger:
    """Writes to the server's log."""

    INFO = LogLevel.INFO
    WARNING = LogLevel.WARNING
    ERROR = LogLevel.ERROR
    VERBOSE = LogLevel.VERBOSE

    @staticmethod
    def log(message: str, level: LogLevel = LogLevel.INFO) -> None:
        """Write a line.

        Raises:
            TypeError: The message is no text, or the level none of the class's own.
        """
        if not isinstance(message, str) or not isinstance(level, LogLevel):
            raise TypeError(
                f"log(message, level) takes a str and a level of Logger, not {type(message).__name__} and "
                f"{type(level).__name__}"
            )
        host = current.host()
        if host.forked:
            # Of a pool of processes, say: what it writes there stands in the server's log as well.
            sys.stderr.write(f"{level.value}: {message}\n")
            sys.stderr.flush()
            return
        host.send({"op": "log", "level": level.value, "text": message})

    @staticmethod
    def log_info(message: str) -> None:
        """Write a line of level INFO."""
        Logger.log(message, LogLevel.INFO)

    @staticmethod
    def log_warn(message: str) -> None:
        """Write a line of level WARNING."""
        Logger.log(message, LogLevel.WARNING)

    @staticmethod
    def log_error(message: str) -> None:
        """Write a line of level ERROR."""
        Logger.log(message, LogLevel.ERROR)

    @staticmethod
    def log_verbose(message: str) -> None:
        """Write a line that only a verbose log has."""
        Logger.log(message, LogLevel.VERBOSE)
