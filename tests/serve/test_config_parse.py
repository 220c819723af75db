"""Reading config.pbtxt and config overrides; what is accepted and told was seen on Triton 2.51."""

from __future__ import annotations

import json

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from repobuild_serve.config.override import parse_override
from repobuild_serve.config.parse import config_path, parse_config, parse_text
from repobuild_serve.errors import ConfigError
from repobuild_serve.messages import model_config_class


def read(folder, data):
    path = folder / "config.pbtxt"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return parse_config(path)


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        pytest.param("foo: 1", "1:1", 'no field named "foo"', id="unknown field"),
        pytest.param("max_batch_size: 1\nmax_batch_size: 2", "2:", "multiple", id="scalar twice"),
        pytest.param("dynamic_batching { }\nsequence_batching { }", "2:1", "oneof", id="two schedulers"),
        pytest.param("version_policy { latest { } all { } }", "1:", "oneof", id="two policies"),
        pytest.param("max_batch_size: 2147483648", "1:", "2147483648", id="number too large"),
        pytest.param("input { format: FORMAT_X }", "1:", "FORMAT_X", id="unknown enum"),
        pytest.param("input { data_type: 99999999999999999999 }", "", "", id="enum number too large"),
        pytest.param("[foo.bar]: 1", "1:", "extensions", id="extension"),
        pytest.param("max_batch_size: +1", "1:17", "expected a number", id="plus"),
        pytest.param('\n name: "\\q"', "2:9", "invalid escape sequence", id="escape"),
        pytest.param('\nname: "\\377"', "2:", "no UTF-8", id="escapes that are no UTF-8"),
        pytest.param(b'# ok\nname: "\xff"', "2:8", "no UTF-8", id="bytes that are no UTF-8"),
        pytest.param("max_batch_size: 1\0", "1:", "", id="a zero byte"),
    ],
)
def test_a_text_that_is_no_config_is_refused_with_its_place(tmp_path, text, place, said):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    path = tmp_path / "config.pbtxt"
    assert caught.value.text.startswith(f"failed to read text proto from {path}: {place}")
    assert said in caught.value.text


@pytest.mark.parametrize(
    ("text", "same"),
    [
        pytest.param("max_batch_size: 0x8", "max_batch_size: 8", id="hexadecimal"),
        pytest.param("input { dims: [ - 1 ] }", "input { dims: -1 }", id="minus apart"),
        pytest.param('name: "\\303\\251"', 'name: "é"', id="octal bytes"),
        pytest.param("max_batch_size: 1;", "max_batch_size: 1", id="semicolon"),
        pytest.param('input < name: "a" >', 'input { name: "a" }', id="angle brackets"),
        pytest.param(b"max_batch_size: 1 # \xff\xfe\n", "max_batch_size: 1", id="comment that is no UTF-8"),
        pytest.param("input { format: 99 }", "input { format: 99 }", id="enum by unknown number"),
        pytest.param("# nothing\n", "", id="nothing"),
    ],
)
def test_a_text_is_read_as_protobufs_cpp_parser_reads_it(tmp_path, text, same):
    assert read(tmp_path, text) == text_format.Parse(same, model_config_class()())


def test_a_missing_file_is_an_empty_config_and_a_folder_is_refused(tmp_path):
    assert not parse_config(tmp_path / "config.pbtxt").ListFields()
    with pytest.raises(ConfigError, match="failed to read text proto from"):
        parse_config(tmp_path)


def test_a_custom_config_is_used_first(tmp_path):
    own = tmp_path / "configs" / "small.pbtxt"
    own.parent.mkdir()
    own.write_text("max_batch_size: 1")
    assert config_path(tmp_path, "small") == own
    assert config_path(tmp_path, "large") == tmp_path / "config.pbtxt"
    assert config_path(tmp_path) == tmp_path / "config.pbtxt"
    with pytest.raises(ConfigError):
        config_path(tmp_path, "x" * 5000)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        pytest.param({"bogus": 1}, "bogus: Cannot find field.", id="unknown"),
        pytest.param({"input": [{"bogus": 1}]}, "(input[0]) bogus: Cannot find field.", id="unknown inside"),
        pytest.param(
            {"optimization": {"cuda": {"graph_spec": [{"input": {"k": {"bogus": 1}}}]}}},
            "(optimization.cuda.graph_spec[0].input[0].value) bogus: Cannot find field.",
            id="unknown inside a map",
        ),
        pytest.param([], ": Root element must be a message.", id="array"),
        pytest.param(
            {"input": [{"data_type": "XX"}]},
            '(input[0].data_type): invalid value "XX" for type type.googleapis.com/inference.DataType',
            id="enum",
        ),
        pytest.param(
            {"max_batch_size": "x"}, '(max_batch_size): invalid value "x" for type TYPE_INT32', id="number"
        ),
        pytest.param(
            {"max_batch_size": 4.5}, "(max_batch_size): invalid value 4.5 for type TYPE_INT32", id="fraction"
        ),
        pytest.param(
            {"max_batch_size": 10000000000},
            "(max_batch_size): invalid value 10000000000 for type TYPE_INT32",
            id="too large",
        ),
        pytest.param({"name": 3}, "(name): invalid value 3 for type TYPE_STRING", id="string"),
        pytest.param(
            {"input": [{"optional": "x"}]},
            '(input[0].optional): invalid value "x" for type TYPE_BOOL',
            id="boolean",
        ),
        pytest.param(
            {"optimization": 3},
            "(optimization): invalid value 3 for type type.googleapis.com/inference.ModelOptimizationPolicy",
            id="message",
        ),
        pytest.param(
            {"input": 3},
            "(input): invalid value 3 for type type.googleapis.com/inference.ModelInput",
            id="list",
        ),
        pytest.param(
            {"parameters": {"a": 3}},
            "(parameters[0].value): invalid value 3 for type type.googleapis.com/inference.ModelParameter",
            id="map value",
        ),
        pytest.param(
            {"parameters": []},
            ": invalid value Cannot bind a list to map for field 'parameters'. for type Map",
            id="list for a map",
        ),
        pytest.param(
            {"runtime": {}},
            ": invalid value Starting an object on a scalar field for type runtime",
            id="object for a string",
        ),
        pytest.param(
            {"optimization": []},
            "optimization: Proto field is not repeating, cannot start list.",
            id="list for a message",
        ),
        pytest.param(
            {"sequence_batching": {"direct": {"minimum_slot_utilization": "x"}}},
            '(sequence_batching.direct.minimum_slot_utilization): invalid value "x" for type TYPE_FLOAT',
            id="real number",
        ),
        pytest.param(
            {"dynamic_batching": {"max_queue_delay_microseconds": -1}},
            "(dynamic_batching.max_queue_delay_microseconds): invalid value -1 for type TYPE_UINT64",
            id="below 0",
        ),
        pytest.param(
            {"response_cache": {"enable": 1}},
            "(response_cache.enable): invalid value 1 for type TYPE_BOOL",
            id="number for a boolean",
        ),
        pytest.param(
            {"dynamicBatching": {}, "sequenceBatching": {}},
            ": invalid value oneof field 'scheduling_choice' is already set. Cannot set 'sequenceBatching' "
            "for type oneof",
            id="two schedulers",
        ),
    ],
)
def test_an_override_that_is_no_config_is_told_as_triton_tells_it(document, said):
    with pytest.raises(ConfigError) as caught:
        parse_override(json.dumps(document))
    assert caught.value.text == f"Invalid config override: {said}"


@pytest.mark.parametrize("text", ["{", "", "nonsense", '{"name": NaN}', '{"a": ' * 100_000])
def test_an_override_that_is_no_json_is_refused(text):
    with pytest.raises(ConfigError, match="Invalid config override: "):
        parse_override(text)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        pytest.param({"max_batch_size": 4.0}, "max_batch_size: 4", id="whole fraction"),
        pytest.param({"maxBatchSize": "4"}, "max_batch_size: 4", id="camel case and number in a string"),
        pytest.param({"input": None, "name": "m"}, 'name: "m"', id="null"),
        pytest.param({"instance_group": [None]}, "", id="null in a list"),
        pytest.param({"parameters": {"a": None}}, 'parameters { key: "a" value { } }', id="null in a map"),
        pytest.param(
            {"version_policy": {"specific": {"versions": 1}}},
            "version_policy { specific { versions: 1 } }",
            id="one for a list",
        ),
        pytest.param({"response_cache": {"enable": "1"}}, "response_cache { enable: true }", id="word"),
        pytest.param({"response_cache": {"enable": "False"}}, "response_cache { enable: false }", id="no"),
        pytest.param({"input": [{"format": "1"}]}, "input { format: 1 }", id="enum by number"),
        pytest.param(
            {"input": [{"data_type": "type_fp32", "dims": [1, "-1"]}]},
            "input { data_type: TYPE_FP32 dims: [ 1, -1 ] }",
            id="enum in lower case",
        ),
        pytest.param(
            {"parameters": {"a": {"string_value": "b"}}},
            'parameters { key: "a" value { string_value: "b" } }',
            id="map",
        ),
        pytest.param(
            {"sequence_batching": {"direct": {"minimum_slot_utilization": 0.5}}},
            "sequence_batching { direct { minimum_slot_utilization: 0.5 } }",
            id="real number",
        ),
    ],
)
def test_an_override_is_a_config(document, text):
    assert parse_override(json.dumps(document)) == text_format.Parse(text, model_config_class()())


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=4) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "name",
                        "input",
                        "dims",
                        "optimization",
                        "graph",
                        "level",
                        "parameters",
                        "reshape",
                        "data_type",
                        "metric_tags",
                        "sequence_batching",
                        "direct",
                        "x",
                    ]
                ),
                inner,
                max_size=3,
            )
        ),
        max_leaves=12,
    )
)
def test_any_override_is_read_or_refused(document):
    text = json.dumps(document)
    try:
        config = parse_override(text)
    except ConfigError as exc:
        refused = exc.text
    else:
        refused = ""
        again = parse_text(text_format.MessageToString(config, as_utf8=True), "x", model_config_class()())
        assert again.SerializeToString(deterministic=True) == config.SerializeToString(deterministic=True)
    assert not refused or refused.startswith("Invalid config override: ")
