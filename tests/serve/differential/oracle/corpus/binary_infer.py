"""Binary requests and answers, raw requests, classification, named outputs, compression."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from typing import Any

import numpy as np

from oracle.corpus.case import Case, binary, blob, infer, named, post, raw, strings, tensor
from oracle.main_models import WIRE_TYPES
from oracle.wire import Request

NUMPY = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
BINARY: dict[str, Any] = {"parameters": {"binary_data_output": True}}
OUT_BINARY = [{"name": "OUT", "parameters": {"binary_data": True}}]


def cases() -> list[Case]:
    """All of them."""
    return [*datatypes(), *tails(), *outputs(), *raw_requests(), *classification(), *compression()]


def octets(wire: str, count: int = 2) -> bytes:
    """Elements of a type on the wire."""
    if wire == "BYTES":
        return strings(*(b"\xff\x00a", b"", b"\xc3\xa9")[:count])
    return (np.arange(count) + 1).astype(NUMPY[wire]).tobytes()


def datatypes() -> list[Case]:
    """Each type in, JSON and binary out; sizes that do not fit."""
    found = []
    for wire in WIRE_TYPES:
        model, data = f"id_{wire.lower()}", octets(wire)
        entry = [blob(len(data), [1, 2], wire)]
        found += [
            (f"{wire}-json-out", binary(model, entry, data)),
            (f"{wire}-binary-out", binary(model, entry, data, **BINARY)),
            (f"{wire}-named-binary-out", binary(model, entry, data, OUT_BINARY)),
            (f"{wire}-short", binary(model, [blob(len(data) - 1, [1, 2], wire)], data[:-1], **BINARY)),
            (f"{wire}-long", binary(model, [blob(len(data) + 1, [1, 2], wire)], data + b"\0", **BINARY)),
            (f"{wire}-two-rows", binary(model, [blob(len(data) * 2, [2, 2], wire)], data * 2, **BINARY)),
            (f"{wire}-rows-missing", binary(model, [blob(len(data), [2, 2], wire)], data, **BINARY)),
        ]
    nan = struct.pack("<2f", float("nan"), float("-inf"))
    found += [
        ("nan-json-out", binary("id_fp32", [blob(8, [1, 2])], nan)),
        ("nan-bits", binary("id_fp32", [blob(8, [1, 2])], b"\x01\x00\xc0\xff\xff\xff\xff\x7f", **BINARY)),
        ("bool-of-two", binary("id_bool", [blob(2, [1, 2], "BOOL")], b"\x02\x00")),
        ("float-digits", binary("id_fp32", [blob(8, [1, 2])], struct.pack("<2f", 0.1, 1 / 3))),
        ("float-tiny", binary("id_fp32", [blob(8, [1, 2])], struct.pack("<2I", 1, 0x80000000))),
        ("double-digits", binary("id_fp64", [blob(16, [1, 2], "FP64")], struct.pack("<2d", 0.1, 1e300))),
        ("double-integral", binary("id_fp64", [blob(16, [1, 2], "FP64")], struct.pack("<2d", 1e15, 123456789.0))),
    ]  # fmt: skip
    return named("binary-type", found)


def tails() -> list[Case]:
    """How the JSON part and the tail fit together."""
    data = octets("FP32")
    entry = blob(8, [1, 2])
    f, i, s = (
        blob(8, [1, 2], "FP32", "F"), blob(12, [1, 3], "INT32", "I"), blob(7, [1, 1], "BYTES", "S"),
    )  # fmt: skip
    tail = octets("FP32") + octets("INT32", 3) + strings(b"abc")
    size = len(json.dumps({"inputs": [entry]}))
    one = [blob(9, [1, 1], "BYTES")]
    return named(
        "binary-tail",
        [
            ("short", binary("id_fp32", [entry], data[:4])),
            ("none", binary("id_fp32", [entry], b"")),
            ("long", binary("id_fp32", [entry], data + b"abcd")),
            ("unclaimed", binary("id_fp32", [tensor([1.0, 2.0])], data)),
            ("mixed", binary("mixed", [f, i, s], tail)),
            ("mixed-binary", binary("mixed", [f, i, s], tail, **BINARY)),
            ("mixed-order", binary("mixed", [s, f, i], strings(b"abc") + octets("FP32") + octets("INT32", 3), **BINARY)),
            ("mixed-json", binary("mixed", [f, tensor([4], [1, 1], "INT32", "I"), s], octets("FP32") + strings(b"abc"), **BINARY)),
            ("mixed-short", binary("mixed", [f, i, s], tail[:-2])),
            ("mixed-two-named", binary("mixed", [f, i, s], tail, [{"name": "S_OUT", "parameters": {"binary_data": True}}, {"name": "F_OUT"}])),
            ("sum-of-sizes", binary("sum", [blob(8, [1, 2], name="A"), blob(12, [1, 2], name="B")], octets("FP32", 5))),
            ("length-negative", binary("id_fp32", [entry], data, length="-1")),
            ("length-large", binary("id_fp32", [entry], data, length="100000")),
            ("length-body", binary("id_fp32", [entry], data, length=str(size + 8))),
            ("length-body-plus-one", binary("id_fp32", [entry], data, length=str(size + 9))),
            ("length-one-short", binary("id_fp32", [entry], data, length=str(size - 1))),
            ("length-one-long", binary("id_fp32", [entry], data, length=str(size + 1))),
            ("length-word", binary("id_fp32", [entry], data, length="abc")),
            ("length-empty", binary("id_fp32", [entry], data, length="")),
            ("length-with-text", binary("id_fp32", [entry], data, length=f"{size}abc")),
            ("length-spaces", binary("id_fp32", [entry], data, length=f" {size} ")),
            ("length-plus", binary("id_fp32", [entry], data, length=f"+{size}")),
            ("length-point", binary("id_fp32", [entry], data, length=f"{size}.5")),
            ("length-huge", binary("id_fp32", [entry], data, length="9" * 30)),
            ("length-32-bits", binary("id_fp32", [entry], data, length=str(2**32 + size))),
            ("length-of-json-only", post("/v2/models/id_fp32/infer", {"inputs": [tensor([1.0, 2.0])]}, {"Inference-Header-Content-Length": str(len(json.dumps({"inputs": [tensor([1.0, 2.0])]})))})),
            ("length-unknown-model", post("/v2/models/nope/infer", b"{}", {"Inference-Header-Content-Length": "99"})),
            ("word-cut", binary("letters", [blob(2, [1, 1], "BYTES")], b"\x01\x00")),
            ("word-cut-second", binary("id_bytes", [blob(7, [1, 2], "BYTES")], strings(b"a") + b"\x01\x00")),
            ("element-cut", binary("letters", [blob(6, [1, 1], "BYTES")], b"\x09\x00\x00\x00ab")),
            ("element-huge", binary("letters", [blob(6, [1, 1], "BYTES")], b"\xff\xff\xff\xffab")),
            ("elements-few", binary("id_bytes", [blob(5, [1, 2], "BYTES")], strings(b"a"))),
            ("elements-many", binary("letters", [blob(10, [1, 1], "BYTES")], strings(b"a", b"b"))),
            ("element-rest", binary("letters", one, strings(b"a") + b"zzzz")),
            ("elements-none", binary("texts", [blob(0, [0], "BYTES")], b"", **BINARY)),
            ("zero-size", binary("variable", [blob(0, [2, 0])], b"", **BINARY)),
            ("zero-size-given", binary("variable", [blob(4, [2, 0])], b"abcd", **BINARY)),
            ("not-utf8", binary("letters", [blob(6, [1, 1], "BYTES")], strings(b"\xff\xfe"))),
            ("nul-json-out", binary("letters", [blob(7, [1, 1], "BYTES")], strings(b"a\x00b"))),
            ("escapes-json-out", binary("letters", [blob(10, [1, 1], "BYTES")], strings(b'"\\/\n\x1f\x7f'))),
            ("shape-huge", binary("variable", [blob(8, [1, 2**60])], data)),
            ("shape-overflow", binary("plane", [blob(4, [2**32, 2**32], "INT32")], b"abcd")),
            ("chunked", Request("POST", "/v2/models/id_fp32/infer", (json.dumps({"inputs": [entry]}).encode(), data[:3], data[3:]), {"Inference-Header-Content-Length": str(size)})),
        ],
    )  # fmt: skip


def outputs() -> list[Case]:
    """Which outputs, in what form."""
    a, b = tensor([1.0, 2.0], name="A"), tensor([3.0, 4.0], name="B")
    both = [a, b]

    def out(name: str, **parameters: Any) -> dict[str, Any]:
        return {"name": name, "parameters": parameters} if parameters else {"name": name}

    return named(
        "outputs",
        [
            ("all", infer("sum", both, [])),
            ("one", infer("sum", both, [out("DIFFERENCE")])),
            ("swapped", infer("sum", both, [out("DIFFERENCE"), out("SUM")])),
            ("twice", infer("sum", both, [out("SUM"), out("SUM")])),
            ("twice-differently", infer("sum", both, [out("SUM"), out("SUM", binary_data=True)])),
            ("one-binary", infer("sum", both, [out("DIFFERENCE", binary_data=True), out("SUM")])),
            ("both-binary", infer("sum", both, [out("DIFFERENCE", binary_data=True), out("SUM", binary_data=True)])),
            ("binary-false", infer("sum", both, [out("SUM", binary_data=False)])),
            ("binary-number", infer("sum", both, [out("SUM", binary_data=1)])),
            ("binary-text", infer("sum", both, [out("SUM", binary_data="true")])),
            ("all-binary", infer("sum", both, **BINARY)),
            ("all-binary-named-json", infer("sum", both, [out("SUM")], **BINARY)),
            ("all-binary-named-false", infer("sum", both, [out("SUM", binary_data=False)], **BINARY)),
            ("all-binary-empty-list", infer("sum", both, [], **BINARY)),
            ("all-binary-false", infer("sum", both, parameters={"binary_data_output": False})),
            ("all-binary-number", infer("sum", both, parameters={"binary_data_output": 1})),
            ("all-binary-text", infer("sum", both, parameters={"binary_data_output": "true"})),
            ("unknown-parameter", infer("sum", both, [out("SUM", other=1)])),
            ("with-id", infer("sum", both, [out("SUM", binary_data=True)], id="five")),
        ],
    )  # fmt: skip


def raw_requests() -> list[Case]:
    """Bodies that are one tensor."""
    return named(
        "raw",
        [
            ("fixed", raw("id_fp32", octets("FP32"))),
            ("variable", raw("variable", octets("FP32", 5))),
            ("variable-misfit", raw("variable", b"abc")),
            ("empty", raw("id_fp32", b"")),
            ("empty-variable", raw("variable", b"")),
            ("short", raw("id_fp32", b"abcd")),
            ("two-rows", raw("id_fp32", octets("FP32", 4))),
            ("two-open-dims", raw("plane", octets("INT32", 4))),
            ("partly", raw("partly", octets("INT32", 12))),
            ("partly-misfit", raw("partly", octets("INT32", 11))),
            ("whole", raw("whole", octets("FP32", 4))),
            ("folded", raw("folded", octets("INT32", 4))),
            ("scalar", raw("scalar", octets("FP32", 1))),
            ("fp16", raw("id_fp16", octets("FP16"))),
            ("text", raw("text", b"some text")),
            ("texts", raw("texts", b"some text")),
            ("letters", raw("letters", b"some text")),
            ("id-bytes", raw("id_bytes", b"some text")),
            ("text-empty", raw("text", b"")),
            ("two-inputs", raw("sum", octets("FP32", 4))),
            ("optional", raw("optional", octets("FP32"))),
            ("unknown-model", raw("nope", b"abcd")),
            ("decoupled", raw("repeat", b"abcd")),
            ("ensemble", raw("chain", octets("INT32", 1))),
            ("two-outputs", raw("probe", octets("INT32", 1))),
            ("gzip", raw("id_fp32", gzip.compress(octets("FP32"), mtime=0), {"Content-Encoding": "gzip"})),
        ],
    )


def classification() -> list[Case]:
    """Top k."""
    four = tensor([0.1, 0.4, 0.3, 0.4], [1, 4])
    rows = tensor([0.1, 0.4, 0.3, 0.2, 5, 6, 7, 8], [2, 4])
    numbers = tensor([-3, 9, 9, 2], [1, 4], "INT32", "I")

    def asked(k: Any, name: str = "OUT", **more: Any) -> list[dict[str, Any]]:
        return [{"name": name, "parameters": {"classification": k, **more}}]

    odd = binary(
        "classes",
        [blob(16, [1, 4])],
        struct.pack("<4f", float("nan"), float("inf"), float("-inf"), 1e20),
        asked(4),
    )
    return named(
        "classes",
        [
            *((f"top-{k}", infer("classes", [four], asked(k))) for k in (0, 1, 2, 4, 9)),
            ("rows", infer("classes", [rows], asked(2))),
            ("integers", infer("classes", [four, numbers], asked(3, "I_OUT"))),
            ("binary", infer("classes", [rows], asked(2, binary_data=True))),
            ("all-binary", infer("classes", [rows], asked(2), **BINARY)),
            ("negative", infer("classes", [four], asked(-1))),
            ("text", infer("classes", [four], asked("1"))),
            ("float", infer("classes", [four], asked(1.0))),
            ("true", infer("classes", [four], asked(True))),
            ("huge", infer("classes", [four], asked(2**40))),
            ("huger", infer("classes", [four], asked(2**63))),
            ("odd-values", odd),
            ("whole", infer("classes_whole", [tensor([1, 2, 3, 4], [2, 2], "FP64")], asked(3))),
            ("whole-all", infer("classes_whole", [tensor([1.5, 1e-9, -3, 4e17], [2, 2], "FP64")], asked(9))),
            ("bool", infer("id_bool", [tensor([True, False], wire="BOOL")], asked(2))),
            ("uint8", infer("id_uint8", [tensor([3, 200], wire="UINT8")], asked(2))),
            ("int8", infer("id_int8", [tensor([-3, 100], wire="INT8")], asked(2))),
            ("uint64", infer("id_uint64", [tensor([3, 2**64 - 1], wire="UINT64")], asked(2))),
            ("int64", infer("id_int64", [tensor([-3, 2**62], wire="INT64")], asked(2))),
            ("fp16", binary("id_fp16", [blob(4, [1, 2], "FP16")], b"\x00\x3c\x00\x40", asked(2))),
            ("unlabelled", infer("id_fp32", [tensor([1.0, 2.0])], asked(2))),
            ("ensemble", infer("ranked", [rows], asked(3))),
            ("variable", infer("variable", [tensor([3.0, 1.0, 2.0])], asked(2))),
            ("zero-size", infer("variable", [tensor([], [1, 0])], asked(2))),
        ],
    )


def compression() -> list[Case]:
    """Both ways."""
    path = "/v2/models/id_fp32/infer"
    body = json.dumps({"inputs": [tensor([1.0, 2.0])]}).encode()
    head = json.dumps({"inputs": [blob(8, [1, 2])]}).encode()
    squeezed = gzip.compress(head + octets("FP32"), mtime=0)
    accepted = (
        "gzip", "deflate", "identity", "*", "br", "gzip, deflate", "deflate, gzip", "gzip;q=0.5, deflate;q=0.8",
        "gzip;q=0.5,identity;q=0.4", "identity, gzip", "gzip;q=0", "GZIP", "gzip;q=abc", "", "deflate;q=1.0, *;q=0.5",
        "identity;q=0.1, gzip;q=0.1", "gzip;q=2", "x-gzip",
    )  # fmt: skip
    return named(
        "compression",
        [
            ("gzip-in", post(path, gzip.compress(body, mtime=0), {"Content-Encoding": "gzip"})),
            ("deflate-in", post(path, zlib.compress(body), {"Content-Encoding": "deflate"})),
            ("raw-deflate-in", post(path, zlib.compress(body)[2:-4], {"Content-Encoding": "deflate"})),
            ("identity-in", post(path, body, {"Content-Encoding": "identity"})),
            ("empty-in", post(path, body, {"Content-Encoding": ""})),
            ("unknown-in", post(path, body, {"Content-Encoding": "br"})),
            ("two-in", post(path, gzip.compress(body, mtime=0), {"Content-Encoding": "gzip, identity"})),
            ("upper-in", post(path, gzip.compress(body, mtime=0), {"Content-Encoding": "GZIP"})),
            ("corrupt-in", post(path, b"not gzip at all", {"Content-Encoding": "gzip"})),
            ("cut-in", post(path, gzip.compress(body, mtime=0)[:-12], {"Content-Encoding": "gzip"})),
            ("plain-as-deflate", post(path, body, {"Content-Encoding": "deflate"})),
            ("gzip-as-deflate", post(path, gzip.compress(body, mtime=0), {"Content-Encoding": "deflate"})),
            ("deflate-as-gzip", post(path, zlib.compress(body), {"Content-Encoding": "gzip"})),
            ("unknown-in-unknown-model", post("/v2/models/nope/infer", body, {"Content-Encoding": "br"})),
            (
                "binary-in",
                post(
                    path,
                    squeezed,
                    {"Content-Encoding": "gzip", "Inference-Header-Content-Length": str(len(head))},
                ),
            ),
            *(
                (f"accept-{number:02}", post(path, body, {"Accept-Encoding": value}))
                for number, value in enumerate(accepted)
            ),
            ("accept-error", post(path, b"{", {"Accept-Encoding": "gzip"})),
            (
                "accept-binary",
                binary(
                    "id_fp32",
                    [blob(8, [1, 2])],
                    octets("FP32"),
                    headers={"Accept-Encoding": "gzip"},
                    **BINARY,
                ),
            ),
            ("accept-metadata", Request("GET", "/v2/models/echo", None, {"Accept-Encoding": "gzip"})),
            ("generate-gzip-in", post("/v2/models/double/generate", b"{}", {"Content-Encoding": "gzip"})),
            (
                "generate-accept",
                post("/v2/models/double/generate", {"IN": 1}, {"Accept-Encoding": "gzip"}),
            ),
            (
                "generate-identity",
                post("/v2/models/double/generate", {"IN": 1}, {"Content-Encoding": "identity"}),
            ),
        ],
    )
