"""Parameters, what programs answer, ensembles, calls between models, generate and generate_stream."""

from __future__ import annotations

from typing import Any

from oracle.corpus.case import Case, binary, blob, infer, named, post, tensor
from oracle.wire import Request

ACTS = (
    "", "raise", "raise_lines", "raise_deep", "raise_triton", "too_few", "too_many", "not_a_response", "not_a_list",
    "division", "UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS",
    "CANCELLED", "error_default", "error_and_tensors", "empty", "missing", "extra", "reversed", "twice", "dtype",
    "shape", "strided", "unicode", "objects", "bytes", "big", "zero", "sender",
)  # fmt: skip
NUMBER = tensor([7], wire="INT32")


def cases() -> list[Case]:
    """All of them."""
    return [*parameters(), *acts(), *ensembles(), *calls(), *generate(), *streams()]


def parameters() -> list[Case]:
    """As the program sees them."""
    values: list[tuple[str, dict[str, Any]]] = [
        ("text", {"a": "x"}),
        ("kinds", {"z": 1, "a": 'é"', "t": True, "f": False, "n": -5}),
        ("order", {"b": 1, "a": 2, "c": "3"}),
        ("float", {"x": 1.5}),
        ("integral-float", {"x": 2.0}),
        ("large", {"x": 2**62, "y": 2**63, "z": 2**64 - 1}),
        ("larger", {"x": 2**64}),
        ("smallest", {"x": -(2**63)}),
        ("null", {"x": None}),
        ("list", {"x": [1]}),
        ("object", {"x": {}}),
        ("empty-name", {"": 1}),
        ("empty-text", {"x": ""}),
        ("nul", {"x": "a\u0000b"}),
        ("reserved", {"triton_x": 1}),
        ("reserved-final", {"triton_enable_empty_final_response": True}),
        ("reserved-upper", {"TRITON_x": 1}),
        ("headers", {"headers": "x"}),
        ("binary-output", {"binary_data_output": False}),
        ("sequence-number", {"sequence_id": 5, "sequence_start": True, "sequence_end": True}),
        ("sequence-text", {"sequence_id": "five", "sequence_start": True}),
        ("sequence-end", {"sequence_id": 5, "sequence_end": True}),
        ("sequence-zero", {"sequence_id": 0}),
        ("sequence-empty", {"sequence_id": ""}),
        ("sequence-negative", {"sequence_id": -1}),
        ("sequence-float", {"sequence_id": 1.0}),
        ("sequence-large", {"sequence_id": 2**64 - 1}),
        ("sequence-long-text", {"sequence_id": "x" * 200}),
        ("sequence-start-number", {"sequence_id": 5, "sequence_start": 1}),
        ("sequence-end-text", {"sequence_id": 5, "sequence_end": "true"}),
        ("priority", {"priority": 3}),
        ("priority-zero", {"priority": 0}),
        ("priority-negative", {"priority": -1}),
        ("priority-text", {"priority": "1"}),
        ("priority-float", {"priority": 1.0}),
        ("priority-large", {"priority": 2**64 - 1}),
        ("timeout", {"timeout": 1000000}),
        ("timeout-zero", {"timeout": 0}),
        ("timeout-negative", {"timeout": -1}),
        ("timeout-text", {"timeout": "1"}),
        ("timeout-float", {"timeout": 1.5}),
        ("timeout-large", {"timeout": 2**63}),
    ]
    return named(
        "parameters",
        [
            *((label, infer("echo", [NUMBER], id="i", parameters=value)) for label, value in values),
            ("none", infer("echo", [NUMBER])),
            ("empty", infer("echo", [NUMBER], parameters={})),
            ("outputs-one", infer("echo", [NUMBER], [{"name": "SEEN"}])),
            ("outputs-two", infer("echo", [NUMBER], [{"name": "SEEN"}, {"name": "OUT"}])),
            ("outputs-twice", infer("echo", [NUMBER], [{"name": "SEEN"}, {"name": "SEEN"}])),
            ("twice", post("/v2/models/echo/infer", b'{"parameters":{"a":1,"a":2},"inputs":[{"name":"IN","datatype":"INT32","shape":[1,1],"data":[1]}]}')),
            ("of-input", infer("echo", [{**NUMBER, "parameters": {"a": 1, "sequence_id": 9}}])),
            ("rows", infer("echo", [tensor([1, 2], [2, 1], "INT32")])),
            ("binary", binary("echo", [blob(4, [1, 1], "INT32")], b"\1\0\0\0", parameters={"a": 1})),
            ("args", infer("args", [NUMBER])),
        ],
    )  # fmt: skip


def acts() -> list[Case]:
    """What the probe can do, plain, with an identifier, and where the answer is binary."""
    found = [(act or "plain", infer("probe", [NUMBER], parameters={"act": act})) for act in ACTS]
    found += [
        (f"{act}-id", infer("probe", [NUMBER], id="an id", parameters={"act": act}))
        for act in ("raise", "INTERNAL", "too_few", "empty", "missing")
    ]
    found += [
        (
            f"{act or 'plain'}-binary",
            infer("probe", [NUMBER], parameters={"act": act, "binary_data_output": True}),
        )
        for act in ("", "empty", "missing", "dtype", "shape", "bytes", "objects", "zero", "extra", "big")
    ]
    found += [
        (f"{act or 'plain'}-one", infer("probe", [NUMBER], [{"name": "OUT"}], parameters={"act": act}))
        for act in ("", "missing", "extra", "twice", "empty", "reversed")
    ]
    found += [
        ("extra-asked", infer("probe", [NUMBER], [{"name": "EXTRA"}], parameters={"act": "extra"})),
        ("classes-of-dtype", infer("probe", [NUMBER], [{"name": "OUT", "parameters": {"classification": 1}}], parameters={"act": "dtype"})),
        ("classes-of-shape", infer("probe", [NUMBER], [{"name": "OUT", "parameters": {"classification": 1}}], parameters={"act": "shape"})),
    ]  # fmt: skip
    return named("act", found)


def ensembles() -> list[Case]:
    """Graphs."""
    rows = tensor([1, 2], [2, 1], "INT32")
    x = tensor([1.0, 2.0], name="X")
    found = [
        ("chain", infer("chain", [NUMBER])),
        ("chain-rows", infer("chain", [rows])),
        ("chain-id", infer("chain", [NUMBER], id="e")),
        ("chain-binary", infer("chain", [NUMBER], parameters={"binary_data_output": True})),
        ("chain-version", infer("chain/versions/1", [NUMBER])),
        ("chain-version-unknown", infer("chain/versions/2", [NUMBER])),
        ("chain-over", infer("chain", [tensor(list(range(9)), [9, 1], "INT32")])),
        ("chain-datatype", infer("chain", [tensor([1.0])])),
        ("chain-name", infer("chain", [tensor([1], wire="INT32", name="ZZ")])),
        ("chain-output", infer("chain", [NUMBER], [{"name": "ZZ"}])),
        ("chain-middle", infer("chain", [NUMBER], [{"name": "MIDDLE"}])),
        ("diamond", infer("diamond", [x])),
        ("diamond-one", infer("diamond", [x], [{"name": "Z"}])),
        ("diamond-swapped", infer("diamond", [x], [{"name": "Z"}, {"name": "Y"}])),
        ("diamond-rows", infer("diamond", [tensor([0.5] * 8, [4, 2], name="X")])),
        ("diamond-over", infer("diamond", [tensor([0.5] * 10, [5, 2], name="X")])),
        ("exposed", infer("exposed", [NUMBER])),
        ("exposed-last", infer("exposed", [NUMBER], [{"name": "OUT"}])),
        ("exposed-middle", infer("exposed", [NUMBER], [{"name": "MIDDLE"}])),
        ("apart", infer("apart", [NUMBER, x])),
        ("apart-one", infer("apart", [NUMBER, x], [{"name": "Y"}])),
        ("apart-missing", infer("apart", [NUMBER])),
        ("whole", infer("whole_chain", [tensor([1, 2, 3], [3, 1], "INT32")])),
        ("whole-over", infer("whole_chain", [tensor(list(range(9)), [9, 1], "INT32")])),
        ("whole-zero", infer("whole_chain", [tensor([], [0, 1], "INT32")])),
        ("seen", infer("seen", [NUMBER], id="s", parameters={"a": 1, "b": "x"})),
        ("seen-sequence", infer("seen", [NUMBER], parameters={"sequence_id": 5, "sequence_start": True, "priority": 2, "timeout": 1000000})),
        ("seen-sequence-text", infer("seen", [NUMBER], parameters={"sequence_id": "five", "sequence_end": True})),
        ("sequence-echo", infer("diamond", [x], parameters={"sequence_id": 5, "sequence_start": True})),
        ("sequence-echo-text", infer("chain", [NUMBER], parameters={"sequence_id": "five"})),
        ("old", infer("old", [NUMBER])),
        ("ranked", infer("ranked", [tensor([1.0, 2, 3, 4], [1, 4])])),
        ("classes-unlabelled", infer("chain", [NUMBER], [{"name": "OUT", "parameters": {"classification": 1}}])),
    ]  # fmt: skip
    found += [
        (f"failing-{act or 'plain'}", infer("failing", [NUMBER], id="f", parameters={"act": act}))
        for act in ("", "raise", "too_few", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "CANCELLED", "INTERNAL",
                    "empty", "missing", "dtype", "shape", "extra", "zero", "big", "bytes")
    ]  # fmt: skip
    return named("ensemble", found)


def calls() -> list[Case]:
    """From a program to another model."""
    several = tensor([3], [1, 1], "INT32")

    def bls(**asked: str) -> Request:
        return infer("bls", [several], id="outer", parameters=asked)

    return named(
        "bls",
        [
            ("exec", bls(model="double")),
            ("async", bls(model="double", way="async")),
            ("several", bls(model="double", way="several")),
            ("ensemble", bls(model="chain")),
            ("ensemble-async", bls(model="chain", way="async")),
            ("version", bls(model="versions", version="1")),
            ("version-unknown", bls(model="versions", version="2")),
            ("unknown", bls(model="nope")),
            ("unknown-async", bls(model="nope", way="async")),
            ("wrong-input", bls(model="double", input="ZZ")),
            ("wrong-output", bls(model="double", names="ZZ")),
            ("wrong-type", bls(model="id_fp32")),
            ("error", bls(model="probe", **{"pass": '{"act": "NOT_FOUND"}'})),
            ("error-async", bls(model="probe", way="async", **{"pass": '{"act": "UNAVAILABLE"}'})),
            ("raise", bls(model="probe", **{"pass": '{"act": "raise"}'})),
            ("missing", bls(model="probe", **{"pass": '{"act": "missing"}'})),
            ("other-output", bls(model="probe", names="SECOND")),
            ("failing-ensemble", bls(model="failing", **{"pass": '{"act": "NOT_FOUND"}'})),
            ("seen", bls(model="echo", names="SEEN", as_id="inner", **{"pass": '{"p": 1, "q": "x"}'})),
            ("decoupled", bls(model="repeat", way="decoupled")),
            ("decoupled-by-exec", bls(model="repeat")),
            ("plain-by-decoupled", bls(model="double", way="decoupled")),
        ],
    )


def generate() -> list[Case]:
    """Flat JSON in and out."""
    table: list[tuple[str, str, Any]] = [
        ("scalar", "double", {"IN": 1}),
        ("list", "double", {"IN": [1]}),
        ("list-two", "double", {"IN": [1, 2]}),
        ("nested", "double", {"IN": [[1]]}),
        ("id", "double", {"id": "g", "IN": 1}),
        ("id-number", "double", {"id": 5, "IN": 1}),
        ("empty", "double", {}),
        ("null", "double", {"IN": None}),
        ("text-for-number", "double", {"IN": "1"}),
        ("float-for-number", "double", {"IN": 1.5}),
        ("object", "double", {"IN": {"a": 1}}),
        ("parameter-list", "double", {"IN": 1, "other": [1]}),
        ("parameter-object", "double", {"IN": 1, "other": {"a": 1}}),
        ("parameter-null", "double", {"IN": 1, "other": None}),
        ("parameter-float", "double", {"IN": 1, "other": 1.5}),
        ("reserved", "double", {"IN": 1, "triton_x": 1}),
        ("array", "double", [1]),
        ("parameters", "echo", {"IN": 1, "a": 1, "b": "x", "c": True}),
        ("parameters-object", "echo", {"IN": 1, "parameters": {"a": 1, "b": "x"}}),
        ("parameters-both", "echo", {"IN": 1, "a": 2, "parameters": {"a": 1}}),
        ("parameters-input", "echo", {"parameters": {"IN": 4}}),
        ("parameters-number", "echo", {"IN": 1, "parameters": 5}),
        ("sequence", "echo", {"IN": 1, "sequence_id": 5, "sequence_start": True, "priority": 1, "timeout": 1000000}),
        ("outputs-ignored", "echo", {"IN": 1, "outputs": "x"}),
        ("variable", "variable", {"IN": [1.0, 2.5, 3.0]}),
        ("variable-one", "variable", {"IN": 5}),
        ("variable-none", "variable", {"IN": []}),
        ("fixed", "id_fp32", {"IN": [1.0, 2.0]}),
        ("fixed-rows", "id_fp32", {"IN": [1.0, 2.0, 3.0, 4.0]}),
        ("fixed-misfit", "id_fp32", {"IN": [1.0, 2.0, 3.0]}),
        ("whole", "whole", {"IN": [1.0, 2.0, 3.0, 4.0]}),
        ("whole-misfit", "whole", {"IN": [1.0, 2.0]}),
        ("plane", "plane", {"IN": [1, 2, 3]}),
        ("partly", "partly", {"IN": list(range(12))}),
        ("scalar-model", "scalar", {"IN": 1.0}),
        ("two", "sum", {"A": [1.0, 2.0], "B": [3.0, 4.0]}),
        ("two-one-missing", "sum", {"A": [1.0, 2.0]}),
        ("text", "text", {"IN": "hello"}),
        ("letters", "letters", {"IN": "hello é"}),
        ("texts", "texts", {"IN": ["a", "b"]}),
        ("bool", "id_bool", {"IN": [True, False]}),
        ("uint8", "id_uint8", {"IN": [1, 256]}),
        ("fp16", "id_fp16", {"IN": [1, 2]}),
        ("fp64", "id_fp64", {"IN": [1, 0.1]}),
        ("int64", "id_int64", {"IN": [2**62, -1]}),
        ("mixed", "mixed", {"F": [1, 2], "I": [1, 2, 3], "S": "s", "id": "m"}),
        ("optional", "optional", {"A": [1, 2]}),
        ("ensemble", "chain", {"IN": 5}),
        ("ensemble-two", "diamond", {"X": [1, 2]}),
        ("version", "versions/versions/1", {"IN": 5}),
        ("version-unknown", "versions/versions/2", {"IN": 5}),
        ("unknown", "nope", {"IN": 5}),
        ("decoupled-one", "repeat", {"IN": 5}),
        ("decoupled-two", "repeat", {"IN": [5, 6]}),
        ("decoupled-none", "repeat", {"IN": []}),
        ("decoupled-with-last", "repeat", {"IN": 5, "act": "with_last"}),
        ("decoupled-error", "repeat", {"IN": [], "act": "error_first"}),
        ("decoupled-error-later", "repeat", {"IN": [5], "act": "error_last"}),
        ("decoupled-raise", "repeat", {"IN": 5, "act": "raise"}),
        ("streamed", "streamed", {"IN": 5}),
        *((f"act-{act}", "probe", {"IN": 1, "act": act})
          for act in ("raise", "NOT_FOUND", "UNAVAILABLE", "empty", "missing", "shape", "bytes", "dtype", "twice")),
    ]  # fmt: skip
    found = [(label, post(f"/v2/models/{model}/generate", body)) for label, model, body in table]
    found += [
        ("syntax", post("/v2/models/double/generate", b"{")),
        ("no-body", post("/v2/models/double/generate")),
        ("chunked", post("/v2/models/double/generate", (b'{"IN"', b":1}"))),
        (
            "header-length",
            post("/v2/models/double/generate", {"IN": 1}, {"Inference-Header-Content-Length": "3"}),
        ),
    ]
    return named("generate", found)


def streams() -> list[Case]:
    """Server-sent events."""
    table: list[tuple[str, str, Any]] = [
        ("plain", "double", {"IN": 1}),
        ("plain-id", "double", {"IN": 1, "id": "q"}),
        ("plain-error", "probe", {"IN": 1, "act": "NOT_FOUND"}),
        ("plain-raise", "probe", {"IN": 1, "act": "raise"}),
        ("plain-empty", "probe", {"IN": 1, "act": "empty"}),
        ("misfit", "double", {"IN": "x"}),
        ("missing", "double", {}),
        ("unknown", "nope", {"IN": 1}),
        ("version-unknown", "versions/versions/9", {"IN": 1}),
        ("one", "repeat", {"IN": 1}),
        ("three", "repeat", {"IN": [1, 2, 3], "id": "r"}),
        ("many", "repeat", {"IN": list(range(200))}),
        ("none", "repeat", {"IN": []}),
        ("with-last", "repeat", {"IN": [1, 2], "act": "with_last"}),
        ("error-first", "repeat", {"IN": [1, 2], "act": "error_first"}),
        ("error-last", "repeat", {"IN": [1, 2], "act": "error_last"}),
        ("empty-response", "repeat", {"IN": [1], "act": "empty_response"}),
        ("raise", "repeat", {"IN": [1], "act": "raise"}),
        ("ensemble", "chain", {"IN": 1}),
        ("streamed", "streamed", {"IN": [1, 2]}),
        ("fp16", "id_fp16", {"IN": [1, 2]}),
    ]
    found = [(label, post(f"/v2/models/{model}/generate_stream", body)) for label, model, body in table]
    found += [
        ("syntax", post("/v2/models/repeat/generate_stream", b"{")),
        ("no-body", post("/v2/models/repeat/generate_stream")),
        ("encoded", post("/v2/models/repeat/generate_stream", b"{}", {"Content-Encoding": "gzip"})),
    ]
    return named("stream", found)
