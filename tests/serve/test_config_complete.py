"""Completing and printing a config; the documents are what Triton 2.51 printed."""

from __future__ import annotations

import json

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from repobuild_serve.config.complete import complete_config, resolve_instances
from repobuild_serve.config.guess import fill_backend
from repobuild_serve.config.override import parse_override
from repobuild_serve.config.parse import parse_text
from repobuild_serve.config.printing import config_document
from repobuild_serve.config.validate import validate_config
from repobuild_serve.errors import ConfigError, LoadError
from repobuild_serve.messages import model_config_class

BASE = (
    'name: "m" backend: "python" max_batch_size: 8\n'
    'input [{ name: "IN" data_type: TYPE_FP32 dims: [ 2 ] }]\n'
    'output [{ name: "OUT" data_type: TYPE_FP32 dims: [ 2 ] }]\n'
)
TENSOR = (
    '"dims":[2],"is_shape_tensor":false,"allow_ragged_batch":false,"optional":false,'
    '"is_non_linear_format_io":false'
)
OUTPUT = (
    '"data_type":"TYPE_FP32","dims":[2],"label_filename":"","is_shape_tensor":false,'
    '"is_non_linear_format_io":false'
)
PRINTED = (
    '{"name":"m","platform":"","backend":"python","runtime":"","version_policy":{"latest":{"num_versions":1}},'
    f'"max_batch_size":8,"input":[{{"name":"IN","data_type":"TYPE_FP32","format":"FORMAT_NONE",{TENSOR}}}],'
    f'"output":[{{"name":"OUT",{OUTPUT}}}],'
    '"batch_input":[],"batch_output":[],"optimization":{"priority":"PRIORITY_DEFAULT",'
    '"input_pinned_memory":{"enable":true},"output_pinned_memory":{"enable":true},'
    '"gather_kernel_buffer_threshold":0,"eager_batching":false},'
    '"instance_group":[{"name":"m","kind":"KIND_CPU","count":1,"gpus":[],"secondary_devices":[],"profile":[],'
    '"passive":false,"host_policy":""}],"default_model_filename":"model.py","cc_model_filenames":{},'
    '"metric_tags":{},"parameters":{},"model_warmup":[]}'
)
ENSEMBLE = (
    'name: "m" platform: "ensemble" max_batch_size: 8\n'
    + BASE.split("\n", 1)[1]
    + 'ensemble_scheduling { step [{ model_name: "b" model_version: -1 input_map { key: "I" value: "IN" } '
    'output_map { key: "O" value: "OUT" } }] }'
)


def parsed(text):
    return parse_text(text, "config.pbtxt", model_config_class()())


def completed(text, default_count=1, gpus=()):
    config = parsed(text)
    complete_config(config, default_count, gpus)
    return config


def test_the_whole_document():
    printed = json.dumps(config_document(completed(BASE)), separators=(",", ":"))
    assert printed == PRINTED


def test_an_ensemble_gets_neither_instances_nor_optimization():
    document = config_document(completed(ENSEMBLE, 2))
    assert "optimization" not in document
    assert document["instance_group"] == []
    assert document["default_model_filename"] == ""
    assert document["version_policy"] == {"latest": {"num_versions": 1}}
    assert document["ensemble_scheduling"]["step"] == [
        {
            "model_name": "b",
            "model_version": -1,
            "input_map": {"I": "IN"},
            "output_map": {"O": "OUT"},
            "model_namespace": "",
        }
    ]
    resolve_instances(completed(ENSEMBLE))


@pytest.mark.parametrize(
    ("more", "path", "value"),
    [
        pytest.param("dynamic_batching { }", "dynamic_batching.preferred_batch_size", [8], id="preferred"),
        pytest.param(
            "dynamic_batching { default_queue_policy { default_timeout_microseconds: 9007199254740993 } }",
            "dynamic_batching.default_queue_policy.default_timeout_microseconds",
            9007199254740993,
            id="time-out",
        ),
        pytest.param(
            "dynamic_batching { priority_queue_policy { key: 2 value { } } }",
            "dynamic_batching.priority_queue_policy.2.timeout_action",
            "REJECT",
            id="policy of a priority",
        ),
        pytest.param(
            "sequence_batching { }", "sequence_batching.max_sequence_idle_microseconds", 1000000, id="idle"
        ),
        pytest.param(
            "sequence_batching { max_sequence_idle_microseconds: 7 }",
            "sequence_batching.max_sequence_idle_microseconds",
            7,
            id="idle given",
        ),
        pytest.param(
            "sequence_batching { oldest { max_candidate_sequences: 4 } }",
            "sequence_batching.oldest",
            {
                "max_candidate_sequences": 4,
                "preferred_batch_size": [8],
                "max_queue_delay_microseconds": 0,
                "preserve_ordering": False,
            },
            id="oldest",
        ),
        pytest.param(
            "sequence_batching { direct { minimum_slot_utilization: 0.1 } }",
            "sequence_batching.direct.minimum_slot_utilization",
            0.1,
            id="number of single precision",
        ),
        pytest.param(
            'sequence_batching { state [{ dims: [ 3 ] initial_state [{ dims: [ 3 ] name: "i" }] }] }',
            "sequence_batching.state.0.initial_state.0.dims",
            ["3"],
            id="dims of an initial state",
        ),
        pytest.param(
            "sequence_batching { state [{ dims: [ 3 ] }] }",
            "sequence_batching.state.0.dims",
            [3],
            id="dims of a state",
        ),
        pytest.param(
            'optimization { cuda { graph_spec [{ input { key: "IN" value { dim: [ 2, 3 ] } } }] } }',
            "optimization.cuda.graph_spec.0.input.IN.dim",
            ["2", "3"],
            id="dims of a graph",
        ),
        pytest.param(
            "optimization { input_pinned_memory { } }",
            "optimization.input_pinned_memory.enable",
            False,
            id="pinned memory",
        ),
        pytest.param(
            "instance_group [{ secondary_devices [{ kind: KIND_NVDLA device_id: 3 }] }]",
            "instance_group.0.secondary_devices.0",
            {"kind": "KIND_NVDLA", "device_id": "3"},
            id="secondary device",
        ),
        pytest.param(
            'instance_group [{ rate_limiter { resources [{ name: "R" count: 2 }] priority: 3 } }]',
            "instance_group.0.rate_limiter",
            {"resources": [{"name": "R", "global": False, "count": 2}], "priority": 3},
            id="rate limiter",
        ),
        pytest.param(
            'cc_model_filenames { key: "8.0" value: "x" }',
            "cc_model_filenames",
            {"8.0": "x"},
            id="file by GPU",
        ),
        pytest.param(
            'model_warmup [{ name: "w" inputs { key: "IN" value { data_type: TYPE_FP32 dims: 2 zero_data: true } } }]',
            "model_warmup.0.inputs.IN",
            {"data_type": "TYPE_FP32", "dims": [2], "zero_data": True},
            id="warm-up",
        ),
        pytest.param("version_policy { }", "version_policy", {}, id="policy without choice"),
        pytest.param(
            "version_policy { specific { versions: [ 1, 7 ] } }",
            "version_policy.specific.versions",
            [1, 7],
            id="versions",
        ),
        pytest.param('default_model_filename: "a.py"', "default_model_filename", "a.py", id="file"),
        pytest.param(
            "model_transaction_policy { }", "model_transaction_policy.decoupled", False, id="coupled"
        ),
    ],
)
def test_a_member_of_the_document(more, path, value):
    document = config_document(completed(BASE + more))
    for part in path.split("."):
        document = document[int(part) if isinstance(document, list) else part]
    assert document == value


def test_without_batching_no_size_is_preferred():
    text = BASE.replace("8", "0")
    assert list(completed(text + "dynamic_batching { }").dynamic_batching.preferred_batch_size) == []


@pytest.mark.parametrize(
    ("groups", "gpus", "found"),
    [
        pytest.param("", (), [("m", "KIND_CPU", 2, [])], id="none"),
        pytest.param("", (0, 1), [("m", "KIND_GPU", 1, [0, 1])], id="none with GPUs"),
        pytest.param("instance_group [{ count: -3 }]", (), [("m_0", "KIND_CPU", 2, [])], id="negative count"),
        pytest.param(
            'instance_group [{ name: "g" }, { count: 3 }]',
            (),
            [("g", "KIND_CPU", 2, []), ("m_1", "KIND_CPU", 3, [])],
            id="two",
        ),
        pytest.param("instance_group [{ kind: KIND_MODEL }]", (), [("m_0", "KIND_MODEL", 1, [])], id="model"),
        pytest.param("instance_group [{ kind: KIND_GPU }]", (3,), [("m_0", "KIND_GPU", 1, [3])], id="GPU"),
        pytest.param(
            "instance_group [{ gpus: [ 1 ] }]", (0, 1), [("m_0", "KIND_GPU", 1, [1])], id="that GPU"
        ),
    ],
)
def test_instance_groups_are_completed(groups, gpus, found):
    config = completed(BASE + groups, 2, gpus)
    resolve_instances(config, gpus)
    kinds = config_document(config)["instance_group"]
    assert [(g["name"], g["kind"], g["count"], g["gpus"]) for g in kinds] == found


@pytest.mark.parametrize(
    ("group", "said"),
    [
        pytest.param("kind: KIND_GPU", "has kind KIND_GPU but no GPUs are available", id="GPU"),
        pytest.param(
            "kind: KIND_GPU gpus: [ 0 ]",
            "specifies invalid or unsupported gpu id 0. GPUs with at least the minimum required CUDA compute "
            "compatibility of 6.000000 are: ",
            id="GPU 0",
        ),
        pytest.param(
            "kind: KIND_CPU gpus: [ 0 ]",
            "has kind KIND_CPU but specifies one or more GPUs",
            id="CPU with GPU",
        ),
        pytest.param("gpus: [ 0 ]", "has kind KIND_CPU but specifies one or more GPUs", id="auto with GPU"),
        pytest.param(
            "kind: KIND_MODEL gpus: [ 0 ]",
            "has kind KIND_MODEL but specifies one or more GPUs",
            id="model with GPU",
        ),
        pytest.param("kind: 99", "has unexpected kind KIND_AUTO", id="unknown kind"),
        pytest.param(
            'profile: "1"',
            "and platform specifies profile field which is only supported for TensorRT models",
            id="profile",
        ),
    ],
)
def test_groups_that_cannot_be_had(group, said):
    with pytest.raises(LoadError) as caught:
        resolve_instances(completed(f"{BASE}instance_group [{{ {group} }}]"))
    assert caught.value.text == f"instance group m_0 of model m {said}"


def test_profiles_of_tensorrt_are_numbers():
    text = BASE.replace("python", "tensorrt") + 'platform: "tensorrt_plan" instance_group [{ profile: "%s" }]'
    resolve_instances(completed(text % "1"))
    with pytest.raises(LoadError, match="specifies invalid profile one"):
        resolve_instances(completed(text % "one"))


@pytest.mark.parametrize(
    ("text", "contents", "found"),
    [
        pytest.param("", {"model.onnx": False}, ("onnxruntime", "onnxruntime_onnx", "model.onnx"), id="ONNX"),
        pytest.param(
            "", {"model.onnx": True}, ("onnxruntime", "onnxruntime_onnx", "model.onnx"), id="folder"
        ),
        pytest.param("", {"model.plan": False}, ("tensorrt", "tensorrt_plan", "model.plan"), id="plan"),
        pytest.param("", {"model.pt": False}, ("pytorch", "pytorch_libtorch", "model.pt"), id="TorchScript"),
        pytest.param("", {"model.pt2": False}, ("pytorch", "torch_aoti", "model.pt2"), id="export"),
        pytest.param("", {"model.py": False, "x.py": False}, ("python", "", "model.py"), id="Python"),
        pytest.param("", {"model.xml": False}, ("openvino", "", "model.xml"), id="OpenVINO"),
        pytest.param(
            "",
            {"model.py": False, "model.onnx": False},
            ("onnxruntime", "onnxruntime_onnx", "model.onnx"),
            id="two kinds",
        ),
        pytest.param('default_model_filename: "model.py"', {}, ("python", "", "model.py"), id="named file"),
        pytest.param('default_model_filename: "a"', {"model.py": False}, ("", "", "a"), id="another file"),
        pytest.param(
            'platform: "onnxruntime_onnx"',
            {},
            ("onnxruntime", "onnxruntime_onnx", "model.onnx"),
            id="platform",
        ),
        pytest.param(
            'backend: "onnxruntime"', {}, ("onnxruntime", "onnxruntime_onnx", "model.onnx"), id="backend"
        ),
        pytest.param('backend: "python" platform: "zzz"', {}, ("python", "zzz", "model.py"), id="tolerated"),
        pytest.param('platform: "zzz"', {"model.py": False}, ("", "zzz", ""), id="unknown platform"),
        pytest.param('platform: "ensemble"', {}, ("", "ensemble", ""), id="ensemble"),
        pytest.param('name: "a.b.c"', {}, ("b.c", "", "model.b.c"), id="by name"),
        pytest.param('name: "a.b"', {"model.plan": True}, ("b", "", "model.b"), id="plan that is a folder"),
    ],
)
def test_the_backend_is_found(text, contents, found):
    config = parsed(text)
    config.name = config.name or "m"
    fill_backend(config, contents)
    assert (config.backend, config.platform, config.default_model_filename) == found


def test_nothing_tells_the_backend():
    with pytest.raises(ConfigError) as caught:
        fill_backend(parsed('name: "m"'), {"model.plan": True})
    assert caught.value.text == (
        "Invalid model name: Could not determine backend for model 'm' with no backend in model "
        "configuration. Expected model name of the form 'model.<backend_name>'."
    )


def _values(field):
    if field.message_type is not None:
        return _messages(field.message_type)
    if field.enum_type is not None:
        return st.sampled_from([value.number for value in field.enum_type.values])
    whole = {1: (-(1 << 31), (1 << 31) - 1), 2: (-(1 << 63), (1 << 63) - 1), 3: (0, (1 << 32) - 1)}
    whole[4] = (0, (1 << 64) - 1)
    if field.cpp_type in whole:
        return st.integers(*whole[field.cpp_type])
    if field.cpp_type in {field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE}:
        return st.floats(width=32 if field.cpp_type == field.CPPTYPE_FLOAT else 64, allow_nan=False)
    return st.booleans() if field.cpp_type == field.CPPTYPE_BOOL else st.text(max_size=3)


def _messages(descriptor):
    """Messages as bytes-comparable protobuf messages, with some fields set."""
    from google.protobuf import message_factory

    fields = list(descriptor.fields)
    if not fields:
        return st.just(message_factory.GetMessageClass(descriptor)())

    @st.composite
    def build(draw):
        message = message_factory.GetMessageClass(descriptor)()
        for field in draw(st.lists(st.sampled_from(fields), max_size=3, unique_by=lambda f: f.name)):
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                key = draw(_values(field.message_type.fields_by_name["key"]))
                value = draw(_values(field.message_type.fields_by_name["value"]))
                if field.message_type.fields_by_name["value"].message_type is not None:
                    getattr(message, field.name)[key].CopyFrom(value)
                else:
                    getattr(message, field.name)[key] = value
            elif field.is_repeated:
                getattr(message, field.name).extend(draw(st.lists(_values(field), max_size=2)))
            elif field.message_type is not None:
                getattr(message, field.name).CopyFrom(draw(_values(field)))
            else:
                setattr(message, field.name, draw(_values(field)))
        return message

    return build()


@settings(max_examples=200, deadline=None)
@given(_messages(model_config_class().DESCRIPTOR))
def test_what_is_printed_describes_the_same_config(config):
    """Text format, the printed JSON and the override reader agree on every field of the message."""
    said = config.SerializeToString(deterministic=True)
    text = text_format.MessageToString(config, as_utf8=True)
    assert parsed(text).SerializeToString(deterministic=True) == said
    printed = json.dumps(config_document(config))
    assert parse_override(printed).SerializeToString(deterministic=True) == said


@settings(max_examples=300, deadline=None)
@given(_messages(model_config_class().DESCRIPTOR), st.sampled_from(["python", "ensemble"]))
def test_any_config_is_taken_or_refused_with_a_text(config, kind):
    config.name = "m"
    config.backend, config.platform = ("", kind) if kind == "ensemble" else (kind, "")
    try:
        validate_config(config)
        complete_config(config, 1)
        resolve_instances(config)
    except (ConfigError, LoadError) as refused:
        told = refused.text
    else:
        told = "taken"
    assert told


@settings(max_examples=100, deadline=None)
@given(_messages(model_config_class().DESCRIPTOR))
def test_completing_twice_changes_nothing(config):
    complete_config(config, 2)
    once = config.SerializeToString(deterministic=True)
    complete_config(config, 2)
    assert config.SerializeToString(deterministic=True) == once
