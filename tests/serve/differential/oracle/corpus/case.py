"""What a case is, and the ways to write requests."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from oracle.wire import Request


@dataclass(frozen=True)
class Case:
    """One request to the main repository; its name is unique."""

    name: str
    request: Request


def get(path: str) -> Request:
    """A GET."""
    return Request("GET", path)


def post(path: str, body: Any = None, headers: dict[str, str] | None = None) -> Request:
    """A POST; a body that is no octets becomes JSON."""
    if body is not None and not isinstance(body, bytes | tuple):
        body = json.dumps(body).encode()
    return Request("POST", path, body, headers or {})


def tensor(
    data: Any, shape: list[Any] | None = None, wire: str = "FP32", name: str = "IN", **more: Any
) -> dict[str, Any]:
    """An entry of ``inputs`` with JSON data; without a shape, one row of as many values."""
    return {"name": name, "datatype": wire, "shape": shape or [1, len(data)], "data": data, **more}


def infer(
    model: str,
    inputs: Any,
    outputs: Any = None,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Request:
    """An inference with a JSON body."""
    document = {"inputs": inputs, **more}
    if outputs is not None:
        document["outputs"] = outputs
    return post(f"/v2/models/{model}/infer", document, headers)


def blob(
    size: int | None, shape: list[int], wire: str = "FP32", name: str = "IN", **more: Any
) -> dict[str, Any]:
    """An entry of ``inputs`` whose data stand in the binary tail."""
    parameters = {} if size is None else {"binary_data_size": size}
    return {"name": name, "datatype": wire, "shape": shape, "parameters": {**parameters, **more}}


def binary(
    model: str,
    inputs: list[dict[str, Any]],
    tail: bytes,
    outputs: Any = None,
    length: str | None = None,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Request:
    """An inference with a binary tail; ``length`` overrides the header's value."""
    document = {"inputs": inputs, **more}
    if outputs is not None:
        document["outputs"] = outputs
    text = json.dumps(document).encode()
    given = {"Inference-Header-Content-Length": str(len(text)) if length is None else length}
    return post(f"/v2/models/{model}/infer", text + tail, {**given, **(headers or {})})


def raw(model: str, body: bytes, headers: dict[str, str] | None = None) -> Request:
    """A raw binary inference."""
    return post(
        f"/v2/models/{model}/infer", body, {"Inference-Header-Content-Length": "0", **(headers or {})}
    )


def strings(*values: bytes) -> bytes:
    """BYTES elements on the wire."""
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def named(prefix: str, table: Iterable[tuple[str, Request]]) -> list[Case]:
    """Cases whose names start with the prefix."""
    return [Case(f"{prefix}-{name}", request) for name, request in table]
