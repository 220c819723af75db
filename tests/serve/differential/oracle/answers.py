"""What of an answer is compared: decoded, and with what differs from run to run taken out."""

from __future__ import annotations

import gzip
import json
import re
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.wire import Answer

KEPT_HEADERS = ("content-encoding", "accept-encoding")
VOLATILE_KEYS = {"ns", "last_inference"}
MAPS = {"parameters", "metric_tags", "input_map", "output_map", "inputs"}  # of protobuf: in any order
_TEMPORARY = re.compile(re.escape(tempfile.gettempdir()) + r"/[^\s\"\\(:]*")
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


@dataclass(frozen=True)
class Aspects:
    """The parts of an answer, each compared on its own; None where there is none."""

    status: int
    type: str | None
    headers: dict[str, str]
    json: Any
    text: str | None
    tail: str | None

    def differing(self, other: Aspects) -> list[str]:
        """The names of the parts that are not equal."""
        return [name for name in self.__dict__ if _plain(getattr(self, name)) != _plain(getattr(other, name))]


def aspects(answer: Answer, repository: Path) -> Aspects:
    """Take an answer apart."""
    body = _decompressed(answer)
    headers = {name: answer.headers[name] for name in KEPT_HEADERS if name in answer.headers}
    length = answer.headers.get("inference-header-content-length")
    tail = None
    if length is not None:
        body, tail = body[: int(length)], body[int(length) :].hex()
    document, text = None, None
    try:
        document = steady(json.loads(body.decode("utf-8", "surrogateescape")), repository)
    except ValueError:
        text = steady_text(body.decode("utf-8", "surrogateescape"), repository)
    # The contract leaves the content type of an error open (1.2).
    kind = answer.headers.get("content-type") if answer.status == 200 and body else None
    return Aspects(answer.status, kind, headers, document, text, tail)


def steady(document: Any, repository: Path) -> Any:
    """A document without times and paths; its floats, NaN too, as they are."""
    if isinstance(document, dict):
        return {
            key: ("volatile" if value else 0)
            if key in VOLATILE_KEYS
            else steady(
                dict(sorted(value.items())) if key in MAPS and isinstance(value, dict) else value, repository
            )
            for key, value in document.items()
        }
    if isinstance(document, list):
        return [steady(entry, repository) for entry in document]
    return steady_text(document, repository) if isinstance(document, str) else document


def steady_text(text: str, repository: Path) -> str:
    """A text without the paths and addresses of this run."""
    text = text.replace(str(repository), "<repository>")
    return _ADDRESS.sub("<address>", _TEMPORARY.sub("<temporary>", text))


def _decompressed(answer: Answer) -> bytes:
    encoding = answer.headers.get("content-encoding")
    if encoding == "gzip":
        return gzip.decompress(answer.body)
    return zlib.decompress(answer.body) if encoding == "deflate" else answer.body


def _plain(value: Any) -> str:
    # Text, so that NaN equals NaN, 1 is not 1.0 and true is not 1; keys in their order.
    return json.dumps(value)
