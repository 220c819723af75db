"""ONNX Runtime's errors in Triton's words."""

from __future__ import annotations

import re

_STATUS = re.compile(r"\[ONNXRuntimeError\] : (\d+) : \w+ : (.*)", re.DOTALL)


def onnx_text(error: BaseException) -> str | None:
    """``onnx runtime error <code>: <message>`` for an error with a status of ONNX Runtime, else None."""
    found = _STATUS.match(str(error))
    return f"onnx runtime error {found.group(1)}: {found.group(2)}" if found else None
