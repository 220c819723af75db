"""The checks of one config; the texts were seen on Triton 2.51, with the marked exceptions."""

from __future__ import annotations

import pytest

from repobuild_serve.config.parse import parse_text
from repobuild_serve.config.validate import validate_config, validate_identity, validate_model
from repobuild_serve.errors import ConfigError
from repobuild_serve.messages import model_config_class

IN = 'input [{ name: "IN" data_type: TYPE_FP32 dims: [ 2 ] }]\n'
OUT = 'output [{ name: "OUT" data_type: TYPE_FP32 dims: [ 2 ] }]\n'
BASE = f'name: "x" backend: "python" max_batch_size: 8\n{IN}{OUT}'
RANGE = "must be integer >= 1, or -1 to indicate a variable-size dimension"
ALLOWED = "Allowed data types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING"
EITHER = "either 'int32_false_true', 'fp32_false_true' or 'bool_false_true'"
PAIR = "int32_false_true: [ 0, 1 ]"


def parsed(text):
    return parse_text(text, "config.pbtxt", model_config_class()())


def told(text):
    with pytest.raises(ConfigError) as caught:
        validate_config(parsed(text))
    return caught.value.text


def control(*kinds, name="S"):
    listed = ", ".join(f"{{ kind: CONTROL_SEQUENCE_{kind} }}" for kind in kinds)
    return f'control_input [{{ name: "{name}" control [ {listed} ] }}] '


def sequence(more):
    return f"{BASE}sequence_batching {{ {more} }}"


def batching(more):
    return f"{BASE}dynamic_batching {{ {more} }}"


def batch_input(more):
    return f'{BASE}batch_input [{{ target_name: "X" {more} }}]'


TENSORS = {
    "no name": ('name: "T"', "", "model {role} must specify 'name'"),
    "no data type": ("data_type: TYPE_FP32", "", "model {role} 'T' must specify 'data_type'"),
    "unknown data type (ours)": (
        "data_type: TYPE_FP32",
        "data_type: 99",
        "model {role} 'T' has unknown 'data_type' 99",
    ),
    "no dims": ("dims: [ 2 ]", "", "model {role} 'T' must specify 'dims'"),
    "dim 0": ("[ 2 ]", "[ 0 ]", f"model {{role}} 'T' dimension {RANGE}"),
    "dim -2": ("[ 2 ]", "[ 1, -2 ]", f"model {{role}} 'T' dimension {RANGE}"),
    "reshape dim 0": (
        "[ 2 ]",
        "[ 2 ] reshape { shape: [ 0 ] }",
        f"model {{role}} 'T' reshape dimensions {RANGE}",
    ),
    "reshape dim -2": (
        "[ 2 ]",
        "[ 2 ] reshape { shape: [ -2 ] }",
        f"model {{role}} 'T' reshape dimensions {RANGE}",
    ),
    "reshape size": (
        "[ 2 ]",
        "[ 2 ] reshape { shape: [ 3 ] }",
        "model {role} 'T' has different size for dims and reshape",
    ),
    "reshape without -1": (
        "[ 2 ]",
        "[ 2, -1 ] reshape { shape: [ 2 ] }",
        "model {role} 'T' has different size for dims and reshape",
    ),
    "reshape with another number of -1": (
        "[ 2 ]",
        "[ 2, -1, -1 ] reshape { shape: [ 2, -1 ] }",
        "model {role} 'T' has different number of variable-size dimensions for dims and reshape",
    ),
    "reshape with other parts": (
        "[ 2 ]",
        "[ 2, -1 ] reshape { shape: [ -1, 2 ] }",
        "model {role} 'T' has different size for dims and reshape",
    ),
    "empty reshape of 2": (
        "[ 2 ]",
        "[ 2 ] reshape { }",
        "model {role} 'T' has different size for dims and reshape",
    ),
    "empty reshape of -1": (
        "[ 2 ]",
        "[ -1 ] reshape { }",
        "model {role} 'T' has different size for dims and reshape",
    ),
    "empty reshape without batching": (
        "max_batch_size: 8",
        "max_batch_size: 0",
        "model {role} 'T' cannot have empty reshape for non-batching model as scalar tensors are not supported",
    ),
    "shape tensor": (
        "[ 2 ]",
        "[ 2 ] is_shape_tensor: true",
        "shape tensors are only supported for TensorRT platform",
    ),
    "non-linear": (
        "[ 2 ]",
        "[ 2 ] is_non_linear_format_io: true",
        "Non-linear IO format is only supported for the TensorRT platform",
    ),
}


@pytest.mark.parametrize("role", ["input", "output"])
@pytest.mark.parametrize("case", TENSORS)
def test_tensors(role, case):
    old, new, said = TENSORS[case]
    other = OUT if role == "input" else IN
    text = f'name: "x" backend: "python" max_batch_size: 8 {other} {role} '
    dims = "[ 1 ] reshape { }" if case == "empty reshape without batching" else "[ 2 ]"
    text += f'[{{ name: "T" data_type: TYPE_FP32 dims: {dims} }}]'
    # The tensor stands last.
    head, found, tail = text.rpartition(old)
    assert found
    assert told(head + new + tail) == said.format(role=role) + " for x"


def test_non_linear_formats_of_tensorrt_have_3_dims():
    text = BASE.replace("python", "tensorrt").replace("name:", 'platform: "tensorrt_plan" name:', 1)
    text = text.replace("[ 2 ]", "[ 2 ] is_non_linear_format_io: true", 1)
    assert told(text) == "Non-linear IO format input requires 3 dims for x"
    validate_config(parsed(text.replace("[ 2 ]", "[ 2, 3, 4 ]", 1)))


REFUSED = {
    "negative batch": (BASE.replace("8", "-1"), "'max_batch_size' must be non-negative value for x"),
    "format": (
        BASE.replace("[ 2 ]", "[ 2 ] format: FORMAT_NHWC", 1),
        "model input NHWC/NCHW require 3 dims for x",
    ),
    "unknown platform": (f'name: "x" platform: "zzz" {IN}{OUT}', "unexpected platform type 'zzz' for x"),
    "neither platform nor backend": (f'name: "x" {IN}{OUT}', "unexpected platform type '' for x"),
    "ensemble with backend": (
        f'{BASE}platform: "ensemble"',
        "Ensemble model 'x' must have platform type 'ensemble' and empty backend type",
    ),
    "platform of another backend": (
        BASE.replace("python", "pytorch") + 'platform: "onnxruntime_onnx"',
        "unexpected 'platform' and 'backend' pair, got:onnxruntime_onnx, pytorch",
    ),
    "unknown platform of a known backend": (
        BASE.replace("python", "onnxruntime") + 'platform: "zzz"',
        "unexpected 'platform' and 'backend' pair, got:zzz, onnxruntime",
    ),
    "preferred 0": (
        batching("preferred_batch_size: 0"),
        "dynamic batching preferred size must be positive for x",
    ),
    "preferred 9": (
        batching("preferred_batch_size: [ 4, 9 ]"),
        "dynamic batching preferred size must be <= max batch size for x",
    ),
    "preferred without batching": (
        batching("preferred_batch_size: 1").replace("8", "0"),
        "dynamic batching preferred size must be <= max batch size for x",
    ),
    "no default priority": (
        batching("priority_levels: 2"),
        "default priority level must be in range [1, 2] for x",
    ),
    "default priority 3": (
        batching("priority_levels: 2 default_priority_level: 3"),
        "default priority level must be in range [1, 2] for x",
    ),
    "policy of priority 3": (
        batching("priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 value { } }"),
        "priority queue policy must have priority level in range [1, 2] for x",
    ),
    "policy of priority 0": (
        batching("priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 0 value { } }"),
        "priority queue policy must have priority level in range [1, 2] for x",
    ),
    "order and priorities": (
        batching("preserve_ordering: true priority_levels: 2 default_priority_level: 1"),
        "Only one priority level is allowed when 'preserve_ordering' is true for x",
    ),
    "order and delay": (
        batching(
            "preserve_ordering: true default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 }"
        ),
        "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for x",
    ),
    "order and delay of a priority": (
        batching(
            "preserve_ordering: true priority_levels: 1 default_priority_level: 1 priority_queue_policy { "
            "key: 1 value { timeout_action: DELAY default_timeout_microseconds: 5 } }"
        ),
        "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for x",
    ),
    "cache and sequences": (
        sequence("") + "response_cache { enable: true }",
        (
            "Response Cache does not currently support model x with sequence batching scheduler. Please disable the "
            "response cache."
        ),
    ),
    "cache and decoupled": (
        BASE + "model_transaction_policy { decoupled: true } response_cache { enable: true }",
        (
            "Response Cache does not currently support model x with 'decoupled' transaction policy. Please disable "
            "the response cache."
        ),
    ),
    "start without pair": (
        sequence(control("START")),
        f"sequence batching must specify {EITHER} for CONTROL_SEQUENCE_START for x",
    ),
    "ready without pair": (
        sequence(control("READY")),
        f"sequence batching must specify {EITHER} for CONTROL_SEQUENCE_READY for x",
    ),
    "pair of 3": (
        sequence(control("START").replace("START", "START fp32_false_true: [ 0, 1, 2 ]")),
        "sequence batching control 'fp32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_START for x",
    ),
    "pair of 1 integer": (
        sequence(control("END").replace("END", "END int32_false_true: [ 0 ]")),
        "sequence batching control 'int32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_END for x",
    ),
    "pair of 1 boolean": (
        sequence(control("END").replace("END", "END bool_false_true: [ false ]")),
        "sequence batching control 'bool_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_END for x",
    ),
    "two pairs": (
        sequence(control("END").replace("END", f"END {PAIR} fp32_false_true: [ 0, 1 ]")),
        (
            "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
            "'bool_false_true' for CONTROL_SEQUENCE_END for x"
        ),
    ),
    "a control twice": (
        sequence((control("START") + control("START", name="T")).replace("START", f"START {PAIR}")),
        "sequence batching specifies multiple CONTROL_SEQUENCE_START tensors for x",
    ),
    "a tensor twice": (
        sequence((control("START") + control("END")).replace("START", f"START {PAIR}")),
        "sequence batching control tensor 'S' is specified for multiple control kinds for x",
    ),
    "control without name": (
        sequence(control("START", name="")),
        "sequence batching control tensor must have a name for x",
    ),
    "id of another type": (
        sequence(control("CORRID").replace("CORRID", "CORRID data_type: TYPE_FP32")),
        f"unexpected data type for control CONTROL_SEQUENCE_CORRID for x. {ALLOWED}",
    ),
    "id without type": (
        sequence(control("CORRID")),
        f"unexpected data type for control CONTROL_SEQUENCE_CORRID for x. {ALLOWED}",
    ),
    "id with pair": (
        sequence(control("CORRID").replace("CORRID", f"CORRID {PAIR}")),
        f"sequence batching must not specify {EITHER} for CONTROL_SEQUENCE_CORRID for x",
    ),
    "oldest preferred 0": (
        sequence("oldest { preferred_batch_size: 0 }"),
        "sequence batching preferred batch size must be positive for x",
    ),
    "oldest preferred 9": (
        sequence("oldest { preferred_batch_size: 9 }"),
        "sequence batching preferred batch size must be <= max batch size for x",
    ),
    "utilization above 1": (
        sequence("direct { minimum_slot_utilization: 1.5 }"),
        "sequence batching minimum slot utilization must be in range (0.0, 1.0] for x",
    ),
    "utilization below 0": (
        sequence("direct { minimum_slot_utilization: -0.5 }"),
        "sequence batching minimum slot utilization must be in range (0.0, 1.0] for x",
    ),
    "utilization that is no number (ours)": (
        sequence("direct { minimum_slot_utilization: nan }"),
        "sequence batching minimum slot utilization must be in range (0.0, 1.0] for x",
    ),
    "batch input source": (
        batch_input('data_type: TYPE_FP32 source_input: "ZZ"'),
        "unknown source input name 'ZZ' for x",
    ),
    "batch input type": (
        batch_input('source_input: "IN"'),
        "batch input data type must be TYPE_INT32 or TYPE_FP32 for x",
    ),
    "batch input without source": (
        batch_input("data_type: TYPE_FP32"),
        "batch input kind 'BATCH_ELEMENT_COUNT' expects 1 source input, got 0 for x",
    ),
    "batch input of two sources": (
        batch_input('kind: BATCH_ITEM_SHAPE data_type: TYPE_FP32 source_input: [ "IN", "IN" ]'),
        "batch input kind 'BATCH_ITEM_SHAPE' expects 1 source input, got 2 for x",
    ),
    "batch input kind": (batch_input('kind: 77 source_input: "IN"'), "unknown batch input kind '' for x"),
    "batch output target": (
        BASE + 'batch_output [{ target_name: "ZZ" source_input: "IN" }]',
        "unknown target output name 'ZZ' for x",
    ),
    "batch output without source": (
        BASE + 'batch_output [{ target_name: "OUT" }]',
        "batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects 1 source input, got 0 for x",
    ),
    "batch output source": (
        BASE + 'batch_output [{ target_name: "OUT" source_input: "ZZ" }]',
        "unknown source input name 'ZZ' for x",
    ),
    "batch output target twice": (
        BASE + 'batch_output [{ target_name: [ "OUT", "OUT" ] source_input: "IN" }]',
        "target output name 'OUT' can only be specified once for x",
    ),
    "batch output kind": (
        BASE + 'batch_output [{ kind: 5 target_name: "OUT" source_input: "IN" }]',
        "unknown batch output kind '' for x",
    ),
    "metric without identifier": (
        BASE + "model_metrics { metric_control [{ }] }",
        "metric control must specify 'metric_identifier'",
    ),
    "metric without family": (
        BASE + "model_metrics { metric_control [{ metric_identifier { } }] }",
        "metric identifier must specify non-empty 'family'",
    ),
    "metric without options": (
        BASE + 'model_metrics { metric_control [{ metric_identifier { family: "f" } }] }',
        "metric control must specify 'histogram_options'",
    ),
    "metric without buckets": (
        BASE
        + 'model_metrics { metric_control [{ metric_identifier { family: "f" } histogram_options { } }] }',
        "histogram options must specify non-empty 'buckets'",
    ),
    "no agents (ours; Triton ends)": (
        BASE + "model_repository_agents { }",
        "'model_repository_agents' must specify 'agents' for x",
    ),
    "order of checks": (
        batching("preferred_batch_size: 0").replace("8", "-1").replace("dims: [ 2 ]", ""),
        "'max_batch_size' must be non-negative value for x",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_broken_rule_is_told_as_triton_tells_it(case):
    text, said = REFUSED[case]
    assert told(text) == said


@pytest.mark.parametrize("key", ["a-b", "_a", "é", "a b", "a\n"], ids=ascii)
def test_a_tag_that_is_no_label_name_is_refused(key):
    """Triton ends with an exception of its metrics library."""
    config = parsed(BASE)
    config.metric_tags[key] = "v"
    with pytest.raises(ConfigError) as caught:
        validate_config(config)
    assert caught.value.text == f"metric tag '{key}' makes no valid label name '_{key}' for x"


ACCEPTED = {
    "plain": BASE,
    "tags": BASE + 'metric_tags { key: "1" value: "v" } metric_tags { key: "" value: "v" }',
    "empty reshape": BASE.replace("[ 2 ]", "[ 1 ] reshape { shape: [ ] }", 1),
    "reshape beside -1": BASE.replace("[ 2 ]", "[ 1, -1 ] reshape { shape: [ -1 ] }", 1),
    "format of 3 dims": BASE.replace("[ 2 ]", "[ 2, 3, 4 ] format: FORMAT_NCHW", 1),
    "format without name": BASE.replace("[ 2 ]", "[ 2 ] format: 99", 1),
    "no inputs and outputs": 'name: "x" backend: "python"',
    "input twice": BASE + IN,
    "batching without batches": batching("").replace("8", "0"),
    "preferred twice": batching("preferred_batch_size: [ 4, 4, 2 ]"),
    "policy without priorities": batching(
        "default_priority_level: 4 priority_queue_policy { key: 3 value { } }"
    ),
    "order and delay without time": batching(
        "preserve_ordering: true default_queue_policy { timeout_action: DELAY }"
    ),
    "order and one priority": batching(
        "preserve_ordering: true priority_levels: 1 default_priority_level: 1"
    ),
    "sequences without controls": sequence(""),
    "two controls in a tensor": sequence(
        control("START", "END").replace("START", f"START {PAIR}").replace("END", f"END {PAIR}")
    ),
    "control named as an input": sequence(control("START", name="IN").replace("START", f"START {PAIR}")),
    "state": sequence("state [{ }]"),
    "utilization": sequence("direct { minimum_slot_utilization: 0.5 }"),
    "batch input without target": BASE + 'batch_input [{ data_type: TYPE_INT32 source_input: "IN" }]',
    "platform of a python model": BASE + 'platform: "onnxruntime_onnx"',
    "cache": BASE + "response_cache { enable: true }",
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_triton_accepts_is_accepted(case):
    validate_config(parsed(ACCEPTED[case]))


def test_inputs_and_outputs_are_checked_apart():
    validate_model(parsed(BASE.replace("dims: [ 2 ]", "")))


def test_the_name_is_that_of_the_folder():
    validate_identity(parsed(BASE), "x")
    with pytest.raises(ConfigError) as caught:
        validate_identity(parsed(BASE), "y")
    assert caught.value.text == (
        "unexpected directory name 'y' for model 'x', directory name must equal model name"
    )


@pytest.mark.parametrize("levels", [1 << 16, (1 << 16) + 1, (1 << 32) - 1])
def test_priority_levels_are_not_more_than_memory_holds(levels):
    text = batching(f"priority_levels: {levels} default_priority_level: 1")
    if levels == 1 << 16:
        validate_config(parsed(text))
    else:
        assert told(text) == f"there can be 65536 priority levels at most, got {levels}, for x"
