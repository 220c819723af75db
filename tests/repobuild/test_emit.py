"""config.pbtxt and warm-up files as Triton wants them."""

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from repobuild.compilers.onnxruntime import OnnxRuntimeCompiler
from repobuild.emit.config import (
    HEADER,
    complete_serving,
    config_mistakes,
    is_ours,
    render_config,
    same_interface,
    warmup_mistakes,
)
from repobuild.emit.versions import Existing, Settled, settle_config
from repobuild.emit.warmup import make_warmup, raw_bytes
from repobuild.errors import InputInvalid
from repobuild.serving import serving_config, serving_mistakes
from repobuild.tensors import DType, Signature, TensorSpec
from repobuild.triton import parse_config

KEPT = "config.pbtxt was edited by hand and fits, so it stays; serving: of the recipe is not applied"
SIGNATURE = Signature(
    (TensorSpec("INPUT0", DType.FP32, (None, 2)),),
    (TensorSpec("OUTPUT0", DType.FP32, (None, 1)),),
    batched=True,
)
WIRE = {"INPUT0": np.array([[6.0, 5.0], [1.0, 2.0]], np.float32)}


def rendered(serving=None, signature=SIGNATURE, wire=WIRE, size=32, name="risk_model"):
    """Text of the configuration, and its warm-up."""
    warm = make_warmup(signature, wire, size)
    completed = complete_serving(
        serving or {},
        batched=signature.batched,
        cpu_only=True,
        parameters=OnnxRuntimeCompiler.parameters,
    )
    return render_config(name, "onnxruntime", signature, completed, size, warm), warm


def test_the_configuration_of_the_lesson():
    text, warm = rendered({"max_batch_size": 32, "dynamic_batching": {"max_queue_delay_microseconds": 5000}})
    [file] = warm.files
    header, _, rest = text.partition("\n")
    assert header == f"{HEADER}{hashlib.sha256(rest.encode()).hexdigest()}"
    assert (
        rest
        == f"""\
name: "risk_model"
backend: "onnxruntime"
max_batch_size: 32
input [
  {{
    name: "INPUT0"
    data_type: TYPE_FP32
    dims: [ 2 ]
  }}
]
output [
  {{
    name: "OUTPUT0"
    data_type: TYPE_FP32
    dims: [ 1 ]
  }}
]
instance_group {{
  count: 1
  kind: KIND_CPU
}}
dynamic_batching {{
  max_queue_delay_microseconds: 5000
}}
parameters {{
  key: "intra_op_thread_count"
  value {{
    string_value: "1"
  }}
}}
model_warmup {{
  name: "real_row_batch_1"
  batch_size: 1
  inputs {{
    key: "INPUT0"
    value {{
      data_type: TYPE_FP32
      dims: [ 2 ]
      input_data_file: "{file}"
    }}
  }}
}}
model_warmup {{
  name: "real_row_batch_32"
  batch_size: 32
  inputs {{
    key: "INPUT0"
    value {{
      data_type: TYPE_FP32
      dims: [ 2 ]
      input_data_file: "{file}"
    }}
  }}
}}
"""
    )


def test_every_field_of_serving_comes_out_as_it_went_in():
    serving = {
        "version_policy": {"latest": {"num_versions": 2}},
        "dynamic_batching": {
            "preferred_batch_size": [4, 8],
            "priority_levels": 2,
            "default_priority_level": 1,
            "priority_queue_policy": {"1": {"max_queue_size": 3, "timeout_action": "DELAY"}},
        },
        "instance_group": [{"kind": "KIND_GPU", "count": 2, "gpus": [0, 1]}],
        "parameters": {"intra_op_thread_count": {"string_value": "4"}},
        "metric_tags": {"team": "risk"},
        "response_cache": {"enable": True},
    }
    assert list(serving_mistakes(serving)) == []
    message = parse_config(rendered(serving)[0], "c")
    wanted = serving_config(serving)
    for field, value in wanted.ListFields():
        assert getattr(message, field.name) == value, field.name


def test_odd_tensor_names_come_back_unchanged():
    name = 'in "quoted" \\ back\tslash: é/{}'
    signature = Signature((TensorSpec(name, DType.FP32, (None, 2)),), SIGNATURE.outputs, batched=True)
    text, warm = rendered(signature=signature, wire={name: WIRE["INPUT0"]})
    assert parse_config(text, "c").input[0].name == name
    assert all(
        set(file) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
        for file in warm.files
    )


def test_without_batching_dims_hold_every_axis():
    signature = Signature(
        (TensorSpec("X", DType.FP32, (None, 2)),), (TensorSpec("y", DType.FP32, (None, 1)),), batched=False
    )
    message = parse_config(rendered(signature=signature, wire={"X": WIRE["INPUT0"]}, size=0)[0], "c")
    assert message.max_batch_size == 0
    assert list(message.input[0].dims) == [-1, 2]
    assert not message.HasField("dynamic_batching")
    [warm] = message.model_warmup
    assert list(warm.inputs["X"].dims) == [2, 2]


def test_batching_without_a_batch_dimension_is_refused():
    with pytest.raises(InputInvalid) as caught:
        complete_serving({"dynamic_batching": {}}, batched=False, cpu_only=True, parameters={})
    assert caught.value.code == "serving-unfit"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ('name: "INPUT0"', "no input 'OTHER'"),
        ("TYPE_FP32", "TYPE_FP64"),
        ("dims: [ 2 ]", "dims [3]"),
        ("dims: [ 1 ]", "output 'OUTPUT0' has dims [-1]"),
        ("max_batch_size: 32", "dims [2], the graph has [-1, 2]"),
    ],
)
def test_a_configuration_that_lies_about_the_graph_is_found(change, words):
    other = {
        'name: "INPUT0"': 'name: "OTHER"',
        "TYPE_FP32": "TYPE_FP64",
        "dims: [ 2 ]": "dims: [ 3 ]",
        "dims: [ 1 ]": "dims: [ -1 ]",
        "max_batch_size: 32": "max_batch_size: 0",
    }[change]
    text = rendered()[0]
    assert list(config_mistakes(parse_config(text, "c"), SIGNATURE)) == []
    message = parse_config(text.replace(change, other, 1), "c")
    assert words in "; ".join(config_mistakes(message, SIGNATURE))


def test_an_input_may_be_narrower_than_a_free_axis_of_the_graph():
    free = Signature((TensorSpec("INPUT0", DType.FP32, (None, None)),), SIGNATURE.outputs, batched=True)
    assert list(config_mistakes(parse_config(rendered()[0], "c"), free)) == []


def test_warmup_files_of_the_wrong_size_or_missing_are_found():
    text, warm = rendered()
    message = parse_config(text, "c")
    [file] = warm.files
    assert list(warmup_mistakes(message, warm.files)) == []
    assert "4 bytes, its dims give 8" in "; ".join(warmup_mistakes(message, {file: b"1234"}))
    assert "not there" in "; ".join(warmup_mistakes(message, {}))


def test_warmup_holds_the_first_real_row_little_endian():
    _, warm = rendered()
    assert list(warm.files.values()) == [struct.pack("<2f", 6.0, 5.0)]
    assert [s.batch_size for s in warm.samples] == [1, 32]


def test_text_is_written_with_length_prefixes():
    assert raw_bytes(np.array(["ab", "é"]), DType.BYTES) == b"\x02\0\0\0ab\x02\0\0\0\xc3\xa9"
    assert raw_bytes(np.array([[1, 2]], dtype=">i8"), DType.INT64) == struct.pack("<2q", 1, 2)


def test_interfaces_are_compared_by_what_clients_see():
    text = rendered()[0]
    one = parse_config(text, "c")
    assert same_interface(one, parse_config(text.replace("5000", "1"), "c")) == []
    wider = parse_config(text.replace("dims: [ 2 ]", "dims: [ 3 ]", 1), "c")
    assert same_interface(one, wider) == ["input 'INPUT0': TYPE_FP32 [2] -> TYPE_FP32 [3]"]


def test_a_config_edited_by_hand_that_still_fits_is_kept_byte_for_byte():
    text = rendered()[0]
    edited = text.replace("count: 1", "count: 3") + "# tuned by hand\n"
    assert settle_config(Existing((1,), edited), text, SIGNATURE, Path("c")) == Settled(
        edited, kept=True, notes=(KEPT,)
    )


def test_a_config_edited_by_hand_that_does_not_fit_is_refused_with_the_difference():
    text = rendered()[0]
    edited = text + 'default_model_filename: "other.onnx"\n'
    with pytest.raises(InputInvalid) as caught:
        settle_config(Existing((1,), edited), text, SIGNATURE, Path("c"))
    assert caught.value.code == "config-edited"
    assert '-default_model_filename: "other.onnx"' in caught.value.render()
    assert "--update-config" in caught.value.hint


def test_an_edited_config_of_other_tensors_is_another_schema():
    text = rendered()[0]
    edited = text.replace("dims: [ 2 ]", "dims: [ 3 ]", 1)
    with pytest.raises(InputInvalid) as caught:
        settle_config(Existing((1,), edited), text, SIGNATURE, Path("c"))
    assert caught.value.code == "schema-changed"
    assert "[3] -> TYPE_FP32 [2]" in caught.value.render()


def test_a_version_with_other_inputs_is_refused():
    text = rendered()[0]
    wider = Signature((TensorSpec("INPUT0", DType.FP32, (None, 3)),), SIGNATURE.outputs, batched=True)
    new = rendered(signature=wider, wire={"INPUT0": np.ones((2, 3), np.float32)})[0]
    with pytest.raises(InputInvalid) as caught:
        settle_config(Existing((1, 2), text), new, wider, Path("c"))
    assert caught.value.code == "schema-changed"
    assert "TYPE_FP32 [2] -> TYPE_FP32 [3]" in caught.value.render()


def test_a_new_setting_replaces_a_config_that_is_ours():
    text = rendered()[0]
    new = rendered({"dynamic_batching": {"max_queue_delay_microseconds": 7}})[0]
    assert settle_config(Existing((1,), text), new, SIGNATURE, Path("c")) == Settled(new, kept=False)


@pytest.mark.parametrize(
    ("serving", "at"),
    [
        ({"max_batch_size": True}, ("max_batch_size",)),
        ({"max_batch_size": -1}, ("max_batch_size",)),
        ({"max_batch_size": 2**31}, ("max_batch_size",)),
        ({"instance_group": {}}, ("instance_group",)),
        ({"instance_group": [3]}, ("instance_group", 0)),
        ({"instance_group": [{"gpus": ["a"]}]}, ("instance_group", 0, "gpus", 0)),
        ({"parameters": {"x": {"string_value": 1}}}, ("parameters", "x", "string_value")),
        ({"parameters": []}, ("parameters",)),
        ({"dynamic_batching": None}, ("dynamic_batching",)),
        ({"optimization": {"priority": 3}}, ("optimization", "priority")),
        ({"model_warmup": []}, ("model_warmup",)),
        ({"response_cache": {"enable": "yes"}}, ("response_cache", "enable")),
        ({"dynamic_batching": {"priority_levels": 2}}, ("dynamic_batching", "default_priority_level")),
        (
            {"dynamic_batching": {"priority_queue_policy": {"1": {"max_queue_size": 3}}}},
            ("dynamic_batching", "priority_queue_policy", "1"),
        ),
        (
            {
                "dynamic_batching": {
                    "preserve_ordering": True,
                    "priority_levels": 2,
                    "default_priority_level": 1,
                }
            },
            ("dynamic_batching", "preserve_ordering"),
        ),
        (
            {
                "dynamic_batching": {
                    "preserve_ordering": True,
                    "default_queue_policy": {"timeout_action": "DELAY", "default_timeout_microseconds": 5},
                }
            },
            ("dynamic_batching", "preserve_ordering"),
        ),
        ({"version_policy": {"latest": {"num_versions": 0}}}, ("version_policy", "latest", "num_versions")),
        ({"instance_group": [{"kind": "KIND_CPU", "gpus": [0]}]}, ("instance_group", 0, "gpus")),
        ({"instance_group": [{"profile": ["1"]}]}, ("instance_group", 0, "profile")),
        ({"instance_group": [{"count": 0}]}, ("instance_group", 0, "count")),
        (
            {"parameters": {"intra_op_thread_count": {"string_value": "many"}}},
            ("parameters", "intra_op_thread_count", "string_value"),
        ),
        ({"optimization": {"graph": {"level": 7}}}, ("optimization", "graph", "level")),
        ({"sequence_batching": {"max_sequence_idle_microseconds": 1}}, ("sequence_batching",)),
        ({"sequence_batching": {}}, ("sequence_batching",)),
        ({"model_repository_agents": {}}, ("model_repository_agents",)),
        ({"runtime": "x.so"}, ("runtime",)),
        ({"instance_group": [{"passive": True}]}, ("instance_group", 0, "passive")),
        ({"model_transaction_policy": {"decoupled": True}}, ("model_transaction_policy",)),
    ],
    ids=str,
)
def test_mistakes_in_serving_are_found_where_they_are(serving, at):
    assert [place for place, _ in serving_mistakes(serving)] == [at]


def test_a_config_is_known_as_ours_until_a_byte_of_it_changes():
    text = rendered()[0]
    assert is_ours(text)
    assert not is_ours(text.replace("count: 1", "count: 2"))
    assert not is_ours(text + "\n")
    assert not is_ours(text.replace("\n", "\r\n"))
    assert not is_ours("")


def test_the_largest_warm_up_batch_is_bounded():
    assert [s.batch_size for s in make_warmup(SIGNATURE, WIRE, 60000).samples] == [1, 1024]
