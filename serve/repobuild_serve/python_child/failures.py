"""The text by which an exception of the model is told, as Triton's stub forms it."""

from __future__ import annotations

from pathlib import Path
from types import FrameType
from typing import List, Optional

_OWN = str(Path(__file__).resolve().parent)
_API = str(Path(_OWN) / "backend")


class TritonModelException(Exception):
    """Raised by the python backend's own functions, and by models on purpose."""


class BackendError(Exception):
    """Raised where Triton's stub fails by itself, outside any python frame; the text stands alone."""


def told(exception: BaseException) -> str:
    """Class, text and frames of an exception, innermost frame first."""
    if isinstance(exception, BackendError):
        return str(exception)
    kind = type(exception)
    name = kind.__name__
    try:
        text = str(exception) or "<EMPTY MESSAGE>"
    except Exception as exc:  # noqa: BLE001 - a model's exception may not even have a text
        text = f"<MESSAGE UNAVAILABLE DUE TO {type(exc).__name__}>"
    lines = _frames(exception)
    return f"{name}: {text}" + ("\n\nAt:\n" + "".join(lines) if lines else "")


def _frames(exception: BaseException) -> List[str]:
    trace = exception.__traceback__
    if trace is None:
        return []
    while trace.tb_next is not None:
        trace = trace.tb_next
    lines: List[str] = []
    frame: Optional[FrameType] = trace.tb_frame
    while frame is not None:
        code = frame.f_code
        if not _own(code.co_filename):
            lines.append(f"  {code.co_filename}({frame.f_lineno}): {code.co_name}\n")
        frame = frame.f_back
    return lines


def _own(filename: str) -> bool:
    return filename.startswith(_OWN) and not filename.startswith(_API)
