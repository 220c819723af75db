"""The repository of models that all load and that no test changes."""

from __future__ import annotations

from oracle.repositories import Model, Step, Tensor, ensemble, identity, python

WIRE_TYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES",
)  # fmt: skip


def main_models() -> list[Model]:
    """Every model of the repository."""
    return [*identities(), *behaviours(), *ensembles()]


def identities() -> list[Model]:
    """Tensors and shapes."""
    mixed = [("F", "FP32", (2,)), ("I", "INT32", (-1,)), ("S", "BYTES", (1,))]
    return [
        *(identity(f"id_{wire.lower()}", wire) for wire in WIRE_TYPES),
        identity("variable", dims=(-1,), extra="dynamic_batching { }"),
        identity("plane", "INT32", (-1, -1), batch=0),
        identity("whole", dims=(2, 2), batch=0),
        identity("partly", "INT32", (3, -1, 2), batch=4),
        identity("text", "BYTES", (1,), batch=0),
        identity("texts", "BYTES", (-1,), batch=0),
        identity("letters", "BYTES", (1,)),
        identity("scalar", dims=(1,), tensor="reshape { shape: [ ] }"),
        identity("folded", "INT32", (2, 2), tensor="reshape { shape: [ 4 ] }"),
        identity("open_folded", "INT32", (-1, 1), tensor="reshape { shape: [ -1 ] }"),
        identity("versions", "INT32", (1,), versions=(1, 3), extra="version_policy { all { } }"),
        python(
            "mixed",
            "identity",
            [Tensor(name, wire, dims) for name, wire, dims in mixed],
            [Tensor(f"{name}_OUT", wire, dims) for name, wire, dims in mixed],
            extra="dynamic_batching { }",
        ),
        python(
            "optional",
            "identity",
            [Tensor("A", "FP32", (2,)), Tensor("B", "FP32", (2,), "optional: true")],
            [Tensor("A_OUT", "FP32", (2,)), Tensor("B_OUT", "FP32", (2,))],
        ),
        python(
            "all_optional",
            "identity",
            [Tensor("A", "FP32", (2,), "optional: true"), Tensor("B", "INT32", (-1,), "optional: true")],
            [Tensor("A_OUT", "FP32", (2,)), Tensor("B_OUT", "INT32", (-1,))],
            batch=0,
        ),
    ]


def behaviours() -> list[Model]:
    """Programs that do more than to give their input back."""
    labels = (("labels.txt", b"zero\none\ntwo\n"),)
    labelled = 'label_filename: "labels.txt"'
    number = [Tensor("IN", "INT32", (1,))]
    return [
        python(
            "sum",
            "sum",
            [Tensor("A", "FP32", (2,)), Tensor("B", "FP32", (2,))],
            [Tensor("SUM", "FP32", (2,)), Tensor("DIFFERENCE", "FP32", (2,))],
            batch=4,
        ),
        python(
            "classes",
            "identity",
            [Tensor("IN", "FP32", (4,)), Tensor("I", "INT32", (4,), "optional: true")],
            [Tensor("OUT", "FP32", (4,), labelled), Tensor("I_OUT", "INT32", (4,))],
            files=labels,
        ),
        python(
            "classes_whole",
            "identity",
            [Tensor("IN", "FP64", (2, 2))],
            [Tensor("OUT", "FP64", (2, 2), labelled)],
            batch=0,
            files=labels,
        ),
        python("probe", "probe", number, [Tensor("OUT", "INT32", (1,)), Tensor("SECOND", "INT32", (1,))]),
        python(
            "echo", "echo", number, [Tensor("SEEN", "BYTES", (1,)), Tensor("OUT", "INT32", (1,))],
            extra="dynamic_batching { }",
        ),
        python("args", "args", number, [Tensor("ARGS", "BYTES", (1,))]),
        python(
            "repeat", "repeat", [Tensor("IN", "INT32", (-1,))], [Tensor("OUT", "INT32", (1,))], batch=0,
            extra="model_transaction_policy { decoupled: true }",
        ),
        python(
            "bls", "bls", [Tensor("IN", "INT32", (-1,))],
            [Tensor("OUT", "INT32", (-1,)), Tensor("ERROR", "BYTES", (1,))],
        ),
        python(
            "double", "initializing", number, [Tensor("OUT", "INT32", (1,))],
            extra='parameters { key: "mark" value { string_value: "100" } }\n'
            'parameters { key: "A key" value { string_value: "é \\"quoted\\"" } }\n'
            'metric_tags { key: "team" value: "a" }',
        ),
        python("recorded", "identity", number, [Tensor("OUT", "INT32", (1,))], extra=WARM_UP),
        *(identity(f"counted_{number}", "INT32", (1,)) for number in ("a", "b")),
        python(
            "counted_probe", "probe", number,
            [Tensor("OUT", "INT32", (1,)), Tensor("SECOND", "INT32", (1,))],
        ),
        python(
            "counted_repeat", "repeat", [Tensor("IN", "INT32", (-1,))], [Tensor("OUT", "INT32", (1,))],
            batch=0, extra="model_transaction_policy { decoupled: true }",
        ),
        python(
            "counted_bls", "bls", [Tensor("IN", "INT32", (-1,))],
            [Tensor("OUT", "INT32", (-1,)), Tensor("ERROR", "BYTES", (1,))],
        ),
    ]  # fmt: skip


WARM_UP = (
    'model_warmup [ { name: "zeros" batch_size: 2 count: 2 '
    'inputs { key: "IN" value { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } } }, '
    '{ name: "random" batch_size: 1 '
    'inputs { key: "IN" value { data_type: TYPE_INT32 dims: [ 1 ] random_data: true } } } ]'
)


def ensembles() -> list[Model]:
    """Graphs of the other models."""
    one_in, one_out = [Tensor("IN", "INT32", (1,))], [Tensor("OUT", "INT32", (1,))]
    fp_in, fp_out = [Tensor("X", "FP32", (2,))], [Tensor("Y", "FP32", (2,))]
    return [
        ensemble(
            "chain", one_in, one_out,
            [Step("double", {"IN": "IN"}, {"OUT": "MIDDLE"}), Step("double", {"IN": "MIDDLE"}, {"OUT": "OUT"})],
        ),
        ensemble(
            "diamond", fp_in, [*fp_out, Tensor("Z", "FP32", (2,))],
            [
                Step("id_fp32", {"IN": "X"}, {"OUT": "LEFT"}),
                Step("variable", {"IN": "X"}, {"OUT": "RIGHT"}),
                Step("sum", {"A": "LEFT", "B": "RIGHT"}, {"SUM": "Y", "DIFFERENCE": "Z"}),
            ],
            batch=4,
        ),
        ensemble(
            "exposed", one_in, [*one_out, Tensor("MIDDLE", "INT32", (1,))],
            [Step("double", {"IN": "IN"}, {"OUT": "MIDDLE"}), Step("double", {"IN": "MIDDLE"}, {"OUT": "OUT"})],
        ),
        ensemble(
            "apart", [*one_in, Tensor("X", "FP32", (2,))], [*one_out, Tensor("Y", "FP32", (2,))],
            [Step("double", {"IN": "IN"}, {"OUT": "OUT"}), Step("id_fp32", {"IN": "X"}, {"OUT": "Y"})],
        ),
        ensemble(
            "whole_chain", [Tensor("IN", "INT32", (-1, 1))], [Tensor("OUT", "INT32", (-1, 1))],
            [Step("double", {"IN": "IN"}, {"OUT": "MIDDLE"}), Step("double", {"IN": "MIDDLE"}, {"OUT": "OUT"})],
            batch=0,
        ),
        ensemble(
            "failing", one_in, one_out,
            [Step("probe", {"IN": "IN"}, {"OUT": "MIDDLE"}), Step("double", {"IN": "MIDDLE"}, {"OUT": "OUT"})],
        ),
        ensemble(
            "counted_failing", one_in, one_out,
            [Step("counted_probe", {"IN": "IN"}, {"OUT": "MIDDLE"}),
             Step("double", {"IN": "MIDDLE"}, {"OUT": "OUT"})],
        ),
        ensemble(
            "counted_chain", one_in, one_out,
            [Step("counted_a", {"IN": "IN"}, {"OUT": "MIDDLE"}),
             Step("counted_b", {"IN": "MIDDLE"}, {"OUT": "OUT"})],
        ),
        ensemble(
            "seen", one_in, [Tensor("SEEN", "BYTES", (1,))],
            [Step("double", {"IN": "IN"}, {"OUT": "MIDDLE"}), Step("echo", {"IN": "MIDDLE"}, {"SEEN": "SEEN"})],
        ),
        ensemble(
            "old", one_in, one_out, [Step("versions", {"IN": "IN"}, {"OUT": "OUT"}, version=1)],
        ),
        ensemble(
            "streamed", [Tensor("IN", "INT32", (-1,))], one_out,
            [Step("repeat", {"IN": "IN"}, {"OUT": "OUT"})], batch=0,
        ),
        ensemble(
            "ranked", [Tensor("IN", "FP32", (4,))], [Tensor("OUT", "FP32", (4,))],
            [Step("classes", {"IN": "IN"}, {"OUT": "OUT"})],
        ),
    ]  # fmt: skip
