"""Inference by JSON: every datatype, shapes, and the errors E1 to E35 that a JSON body can raise."""

from __future__ import annotations

import json
from typing import Any

from oracle.corpus.case import Case, binary, blob, infer, named, post, tensor
from oracle.main_models import WIRE_TYPES
from oracle.wire import Request

GOOD: dict[str, list[list[Any]]] = {
    "BOOL": [[True, False]],
    "UINT8": [[0, 255], [256, 300]],
    "UINT16": [[0, 65535], [65536, 70000]],
    "UINT32": [[0, 4294967295], [4294967296, 2**63]],
    "UINT64": [[0, 2**64 - 1]],
    "INT8": [[-128, 127], [200, -200]],
    "INT16": [[-32768, 32767], [40000, -40000]],
    "INT32": [[-(2**31), 2**31 - 1], [2**40, 2**31]],
    "INT64": [[-(2**63), 2**63 - 1]],
    "FP16": [[1.0, 2.0]],
    "FP32": [[1.5, -2.25], [1, 2], [1e-45, 3.4028235e38], [0.1, 1e21], [16777217, 70000000001]],
    "FP64": [[1.5, -2.25], [1, 2], [5e-324, 1.7976931348623157e308], [0.1, 1e22], [123456789012345678, 1e-7]],
    "BYTES": [["a", ""], ["é\u4e16", "\u0000x"], ['"quoted"\\', "tab\tnew\nline/\u007f\u2028"]],
}
WRONG = [
    [1.0, 2.0],
    [-1, 1],
    [True, False],
    ["a", "b"],
    [None, None],
    [[1], [2]],
    [{}, {}],
    [1, "b"],
    [2**64, 1],
]


def cases() -> list[Case]:
    """All of them."""
    return [*datatypes(), *data(), *shapes(), *documents(), *syntax(), *core(), *ids()]


def datatypes() -> list[Case]:
    """Values of each type, good and wrong."""
    found = []
    for wire in WIRE_TYPES:
        model = f"id_{wire.lower()}"
        for number, values in enumerate(GOOD[wire]):
            found.append((f"{wire}-good-{number}", infer(model, [tensor(values, wire=wire)])))
        for number, values in enumerate(WRONG):
            found.append((f"{wire}-wrong-{number}", infer(model, [tensor(values, [1, 2], wire)])))
        for claimed in ("FP32", "BYTES", "INT8"):
            if claimed != wire:
                values = ["a", "b"] if claimed == "BYTES" else [1, 2]
                found.append((f"{wire}-claimed-{claimed}", infer(model, [tensor(values, wire=claimed)])))
    for label in ("fp32", "STRING", "TYPE_FP32", "BF16", "FLOAT", "", "INVALID"):
        found.append((f"named-{label}", infer("id_fp32", [tensor([1.0, 2.0], wire=label)])))
    return named("json-type", found)


def text(model: str, values: str, wire: str = "FP32", shape: str = "[1,2]") -> Request:
    """A body that ``json.dumps`` would not write."""
    body = f'{{"inputs":[{{"name":"IN","datatype":"{wire}","shape":{shape},"data":{values}}}]}}'
    return post(f"/v2/models/{model}/infer", body.encode("utf-8", "surrogateescape"))


def data() -> list[Case]:
    """Literals and nesting."""
    return named(
        "json-data",
        [
            ("nan", text("id_fp32", "[NaN,1]")),
            ("infinity", text("id_fp32", "[Infinity,-Infinity]")),
            ("inf-short", text("id_fp32", "[Inf,-Inf]")),
            ("nan-lower", text("id_fp32", "[nan,1]")),
            ("overflow", text("id_fp32", "[1e39,-1e39]")),
            ("overflow-64", text("id_fp64", "[1e308,1e309]")),
            ("nan-64", text("id_fp64", "[NaN,Infinity]")),
            ("exponent", text("id_fp32", "[1E2,1e+2]")),
            ("minus-zero", text("id_fp32", "[-0.0,-0]")),
            ("leading-zero", text("id_fp32", "[01,1]")),
            ("leading-plus", text("id_fp32", "[+1,1]")),
            ("bare-point", text("id_fp32", "[1.,1]")),
            ("leading-point", text("id_fp32", "[.5,1]")),
            ("hexadecimal", text("id_int32", "[0x1,1]", "INT32")),
            ("integer-exponent", text("id_int32", "[1e2,1]", "INT32")),
            ("integer-minus-zero", text("id_int32", "[-0,1]", "INT32")),
            ("integer-64-over", text("id_int64", "[9223372036854775808,1]", "INT64")),
            ("integer-64-far-over", text("id_int64", "[99999999999999999999,1]", "INT64")),
            ("unsigned-64-over", text("id_uint64", "[18446744073709551616,1]", "UINT64")),
            ("digits", text("id_fp64", "[0.1000000000000000055511151231257827,1]", "FP64")),
            ("long-integer-as-float", text("id_fp64", "[123456789012345678901234567890,1]", "FP64")),
            ("nested", text("id_fp32", "[[1.0,2.0]]")),
            ("nested-ragged", text("id_fp32", "[[1.0],2.0]")),
            ("nested-deep", text("id_fp32", "[[[[1.0]]],[[2.0]]]")),
            ("nested-empty", text("id_fp32", "[[],[1.0,2.0],[]]")),
            ("nested-other-shape", text("id_fp32", "[[1.0,2.0],[3.0,4.0]]", shape="[2,2]")),
            ("flat-two-rows", text("id_fp32", "[1,2,3,4]", shape="[2,2]")),
            ("few", text("id_fp32", "[1.0]")),
            ("many", text("id_fp32", "[1.0,2.0,3.0]")),
            ("none", text("id_fp32", "[]")),
            ("scalar", text("id_fp32", "1.0", shape="[1]")),
            ("object", text("id_fp32", "{}")),
            ("null", text("id_fp32", "null")),
            ("string", text("id_fp32", '"1.0"')),
            ("trailing-comma", text("id_fp32", "[1.0,2.0,]")),
            ("no-comma", text("id_fp32", "[1.0 2.0]")),
            ("few-strings", text("id_bytes", '["a"]', "BYTES")),
            ("many-strings", text("id_bytes", '["a","b","c"]', "BYTES")),
            ("string-escapes", text("id_bytes", r'["\u00e9\ud83d\ude00","\/\b\f"]', "BYTES")),
            ("string-lone-surrogate", text("id_bytes", r'["\ud800","b"]', "BYTES")),
            ("string-bad-escape", text("id_bytes", r'["\x","b"]', "BYTES")),
            ("string-raw-control", text("id_bytes", '["a\tb","b"]', "BYTES")),
            ("string-not-utf8", text("id_bytes", '["\udcff\udcfe","b"]', "BYTES")),
            ("string-nested", text("id_bytes", '[["a","b"]]', "BYTES")),
            ("bool-mixed", text("id_bool", "[true,1]", "BOOL")),
            ("large", infer("variable", [tensor([0.5] * 5000)])),
        ],
    )


def shapes() -> list[Case]:
    """Shapes that fit and that do not."""
    one = [1.0, 2.0]
    return named(
        "json-shape",
        [
            *(
                (name, infer(model, [tensor(values, shape, wire)]))
                for name, model, values, shape, wire in (
                    ("batch", "id_fp32", [1.0, 2, 3, 4], [2, 2], "FP32"),
                    ("batch-max", "id_fp32", [0.5] * 16, [8, 2], "FP32"),
                    ("batch-over", "id_fp32", [0.5] * 18, [9, 2], "FP32"),
                    ("batch-zero", "id_fp32", [], [0, 2], "FP32"),
                    ("no-batch", "id_fp32", one, [2], "FP32"),
                    ("extra-rank", "id_fp32", one, [1, 1, 2], "FP32"),
                    ("wrong-dim", "id_fp32", [1.0, 2, 3], [1, 3], "FP32"),
                    ("empty-shape", "id_fp32", [], [], "FP32"),
                    ("variable", "variable", [1.0, 2, 3], [1, 3], "FP32"),
                    ("variable-zero", "variable", [], [2, 0], "FP32"),
                    ("variable-batch", "variable", [1.0, 2, 3, 4], [2, 2], "FP32"),
                    ("plane", "plane", [1, 2, 3, 4, 5, 6], [2, 3], "INT32"),
                    ("plane-zero", "plane", [], [0, 3], "INT32"),
                    ("plane-rank", "plane", [1, 2], [2], "INT32"),
                    ("whole", "whole", [1.0, 2, 3, 4], [2, 2], "FP32"),
                    ("whole-rank", "whole", [1.0, 2, 3, 4], [1, 2, 2], "FP32"),
                    ("whole-dim", "whole", [1.0, 2, 3, 4, 5, 6], [2, 3], "FP32"),
                    ("partly", "partly", list(range(12)), [1, 3, 2, 2], "INT32"),
                    ("partly-wrong", "partly", list(range(12)), [1, 2, 3, 2], "INT32"),
                    ("scalar", "scalar", [1.0, 2.0], [2, 1], "FP32"),
                    ("scalar-without", "scalar", [1.0, 2.0], [2], "FP32"),
                    ("scalar-wrong", "scalar", [1.0, 2.0], [1, 2], "FP32"),
                    ("folded", "folded", [1, 2, 3, 4], [1, 2, 2], "INT32"),
                    ("folded-as-seen", "folded", [1, 2, 3, 4], [1, 4], "INT32"),
                    ("open-folded", "open_folded", [1, 2, 3], [1, 3, 1], "INT32"),
                    ("open-folded-wrong", "open_folded", [1, 2], [1, 1, 2], "INT32"),
                    ("text", "text", ["a"], [1], "BYTES"),
                    ("texts", "texts", ["a", "b"], [2], "BYTES"),
                    ("texts-none", "texts", [], [0], "BYTES"),
                    ("letters", "letters", ["a", "b"], [2, 1], "BYTES"),
                )
            ),
            ("negative", infer("variable", [tensor(one, [1, -1])])),
            ("negative-batch", infer("variable", [tensor(one, [-1, 2])])),
            ("float", infer("id_fp32", [tensor(one, [1.0, 2.0])])),
            ("text-dim", infer("id_fp32", [tensor(one, ["1", 2])])),
            ("not-array", infer("id_fp32", [{"name": "IN", "datatype": "FP32", "shape": 2, "data": one}])),
            ("huge", infer("variable", [tensor(one, [1, 2**40])])),
            ("huge-product", infer("plane", [tensor([1], [2**33, 2**33], "INT32")])),
            ("beyond-64", text("id_fp32", "[1,2]", shape="[1,18446744073709551616]")),
            ("beyond-63", text("id_fp32", "[1,2]", shape="[1,9223372036854775808]")),
            ("null", text("id_fp32", "[1,2]", shape="null")),
            ("null-dim", text("id_fp32", "[1,2]", shape="[1,null]")),
            ("boolean-dim", text("id_fp32", "[1,2]", shape="[true,2]")),
        ],
    )


def documents() -> list[Case]:
    """Keys that are missing, wrong, unknown or repeated."""
    good = tensor([1.0, 2.0])
    path = "/v2/models/id_fp32/infer"
    found = [
        (f"without-{key}", infer("id_fp32", [{k: v for k, v in good.items() if k != key}])) for key in good
    ]
    for key in ("name", "datatype", "shape", "data", "parameters"):
        for label, value in (
            ("number", 1),
            ("null", None),
            ("object", {}),
            ("list", []),
            ("text", "x"),
            ("true", True),
        ):
            found.append((f"{key}-{label}", infer("id_fp32", [{**good, key: value}])))
    for label, value in (
        ("number", 1),
        ("null", None),
        ("object", {}),
        ("list", []),
        ("text", "x"),
        ("numbers", [1]),
    ):
        found.append((f"inputs-{label}", post(path, {"inputs": value})))
        found.append((f"outputs-{label}", post(path, {"inputs": [good], "outputs": value})))
        found.append((f"id-{label}", post(path, {"inputs": [good], "id": value})))
        found.append((f"request-parameters-{label}", post(path, {"inputs": [good], "parameters": value})))
    found += [
        ("nothing", post(path, {})),
        ("array", post(path, [])),
        ("number", post(path, 5)),
        ("text", post(path, "x")),
        ("null", post(path, b"null")),
        ("unknown-keys", post(path, {"inputs": [{**good, "zz": 1}], "zz": [1], "outputs": [{"name": "OUT", "zz": 1}]})),
        ("order", post(path, b'{"outputs":[{"name":"OUT"}],"inputs":[{"data":[1,2],"shape":[1,2],"datatype":"FP32","name":"IN"}]}')),
        ("same-key-twice", post(path, b'{"inputs":[],"inputs":[{"name":"IN","shape":[1,2],"datatype":"FP32","data":[1,2]}]}')),
        ("same-key-twice-other", post(path, b'{"id":"a","id":"b","inputs":[{"name":"IN","shape":[1,2],"datatype":"FP32","data":[1,2]}]}')),
        ("output-no-name", infer("id_fp32", [good], [{}])),
        ("output-name-type", infer("id_fp32", [good], [{"name": 1}])),
        ("output-unknown", infer("id_fp32", [good], [{"name": "Z"}])),
        ("output-unknown-with-id", infer("id_fp32", [good], [{"name": "Z"}], id="i")),
        ("output-parameters-type", infer("id_fp32", [good], [{"name": "OUT", "parameters": 1}])),
        ("data-and-binary", infer("id_fp32", [{**good, "parameters": {"binary_data_size": 8}}])),
        ("data-and-shm", infer("id_fp32", [{**good, "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8}}])),
        ("shm-unknown", infer("id_fp32", [blob(None, [1, 2], shared_memory_region="rX", shared_memory_byte_size=8)])),
        ("shm-no-size", infer("id_fp32", [blob(None, [1, 2], shared_memory_region="rX")])),
        ("shm-region-type", infer("id_fp32", [blob(None, [1, 2], shared_memory_region=1)])),
        ("output-shm-unknown", infer("id_fp32", [good], [{"name": "OUT", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8}}])),
        ("output-shm-and-binary", infer("id_fp32", [good], [{"name": "OUT", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8, "binary_data": True}}])),
        ("output-shm-and-classes", infer("id_fp32", [good], [{"name": "OUT", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8, "classification": 1}}])),
        ("binary-size-no-header", infer("id_fp32", [blob(8, [1, 2])])),
        ("binary-size-zero", infer("id_fp32", [blob(0, [1, 2])])),
        ("binary-size-text", infer("id_fp32", [blob(None, [1, 2], binary_data_size="8")])),
        ("binary-size-negative", infer("id_fp32", [blob(-8, [1, 2])])),
        ("no-content-type", post(path, {"inputs": [good]}, {"Content-Type": "text/html"})),
        ("forwarded-id", post(path, {"inputs": [good]}, {"triton-request-id": "h"})),
        ("chunked", post(path, (b'{"inputs":[{"name":"IN",', b'"shape":[1,2],"datatype":"FP32","data":[1,2]}]}'))),
        ("chunked-bytes", post(path, tuple(bytes([b]) for b in json.dumps({"inputs": [good]}).encode()))),
    ]  # fmt: skip
    return named("json-doc", found)


def syntax() -> list[Case]:
    """Bodies that are no JSON: the parser's own words and offsets."""
    bodies = (
        b"{", b"}", b"[", b"x", b"{]", b'{"a"}', b'{"a":}', b'{"a":1', b'{"a":1,}', b"{,}", b'{"a":1}x', b'{"a" 1}',
        b"{1:2}", b'{"a":"b}', b'{"a":tru}', b'{"a":nul}', b'{"a":-}', b'{"a":1e}', b'{"a":1.}', b'{"a":"\\u12"}',
        b'{"a":"\\ud800"}', b'{"a":"\\ud800\\u0041"}', b'{"a":"\\q"}', b'{"a":"\x01"}', b'{"a":"\xff"}', b"\xef\xbb\xbf{}",
        b" \n\t", b"\x00", b'{"a":1}\x00', b"[1,2", b"[1 2]", b'{"a":1e400}', b'{"a":[1,]}', b"/* c */ {}", b"{} {}",
        b"'a'", b'{"a":Nan}', b'{"a":Infinit}', b'{"a":1 "b":2}', b"[[[[[[[[[[", b'{"a":00}', b'{"a":--1}', b"true", b"nan",
    )  # fmt: skip
    return named(
        "syntax",
        [(f"{number:02}", post("/v2/models/id_fp32/infer", body)) for number, body in enumerate(bodies)]
        + [
            ("unknown-model-first", post("/v2/models/nope/infer", b"{")),
            ("decoupled-first", post("/v2/models/repeat/infer", b"{")),
            ("empty-body", post("/v2/models/id_fp32/infer", b"")),
            ("empty-body-two-inputs", post("/v2/models/sum/infer", b"")),
        ],
    )


def core() -> list[Case]:
    """What is checked against the model's configuration."""
    a, b = tensor([1.0, 2.0], name="A"), tensor([3.0, 4.0], name="B")
    good = tensor([1.0, 2.0])
    number = tensor([7], wire="INT32")
    return named(
        "core",
        [
            ("sum", infer("sum", [a, b])),
            ("sum-swapped", infer("sum", [b, a])),
            ("one-of-two", infer("sum", [a])),
            ("three-of-two", infer("sum", [a, b, tensor([1.0, 2.0], name="C")])),
            ("none-of-two", infer("sum", [])),
            ("wrong-name", infer("sum", [a, tensor([1.0, 2.0], name="C")])),
            ("wrong-names", infer("sum", [tensor([1.0, 2.0], name="D"), tensor([1.0, 2.0], name="C")])),
            ("wrong-name-one", infer("id_fp32", [tensor([1.0, 2.0], name="X")])),
            ("empty-name", infer("id_fp32", [tensor([1.0, 2.0], name="")])),
            ("twice", infer("sum", [a, a])),
            ("twice-one", infer("id_fp32", [good, good])),
            ("twice-with-id", infer("sum", [a, a], id="twice")),
            ("batches-differ", infer("sum", [a, tensor([1.0, 2, 3, 4], [2, 2], name="B")])),
            ("batches-differ-id", infer("sum", [a, tensor([1.0, 2, 3, 4], [2, 2], name="B")], id="x y")),
            ("datatype-of-second", infer("sum", [a, tensor([1, 2], wire="INT32", name="B")])),
            ("datatype-and-count", infer("sum", [tensor([1, 2], wire="INT32", name="A")])),
            ("datatype-and-shape", infer("sum", [tensor([1], wire="INT32", name="A"), b])),
            ("over-and-shape", infer("sum", [tensor([0.5] * 15, [5, 3], name="A"), b])),
            ("over-limit-id", infer("sum", [tensor([0.5] * 10, [5, 2], name="A"), tensor([0.5] * 10, [5, 2], name="B")], id="7")),
            ("optional-both", infer("optional", [a, b])),
            ("optional-first", infer("optional", [a])),
            ("optional-second-only", infer("optional", [b])),
            ("optional-none", infer("optional", [])),
            ("optional-unknown", infer("optional", [a, tensor([1.0, 2.0], name="C")])),
            ("optional-unknown-only", infer("optional", [tensor([1.0, 2.0], name="C")])),
            ("optional-three", infer("optional", [a, b, tensor([1.0, 2.0], name="C")])),
            ("optional-output-of-missing", infer("optional", [a], [{"name": "B_OUT"}])),
            ("all-optional-none", infer("all_optional", [])),
            ("all-optional-one", infer("all_optional", [tensor([5, 6], [2], "INT32", "B")])),
            ("unknown-model", infer("nope", [good])),
            ("unknown-version", infer("echo/versions/9", [number])),
            ("version", infer("versions/versions/1", [number])),
            ("version-highest", infer("versions", [number])),
            ("version-leading-zero", infer("versions/versions/003", [number])),
            ("version-missing", infer("versions/versions/2", [number])),
            ("version-zero", infer("versions/versions/0", [number])),
            ("version-large", infer("versions/versions/99999999999999999999999", [number])),
            ("version-large-fits", infer("versions/versions/9223372036854775807", [number])),
            ("version-word", infer("versions/versions/one", [number])),
            ("decoupled", infer("repeat", [tensor([1], [1], "INT32")])),
            ("decoupled-ensemble", infer("streamed", [tensor([1], [1], "INT32")])),
            ("fp16-out-json", binary("id_fp16", [blob(4, [1, 2], "FP16")], b"\x00\x3c\x00\x40")),
        ],
    )  # fmt: skip


def ids() -> list[Case]:
    """Request identifiers."""
    good = tensor([1.0, 2.0])
    return named(
        "id",
        [
            (f"{number}", infer("id_fp32", [good], id=value))
            for number, value in enumerate(("a", "", 'é " \\ / \n', "0", "x" * 1000, "\u0000z"))
        ]
        + [
            ("in-error", infer("id_fp32", [tensor([1.0, 2, 3])], id="the id")),
            ("in-error-empty", infer("id_fp32", [tensor([1.0, 2, 3])], id="")),
        ],
    )
