"""Texts as protobuf's C++ parser reads them; the right values were read by protoc --encode."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from repobuild.errors import InputInvalid
from repobuild.pbtxt import Refused, rewritten
from repobuild.triton import as_triton_reads, model_config, parse_config


def read(text):
    """The message of a text."""
    return parse_config(text, "config.pbtxt")


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (r'"\ud83d\ude00"', "😀"),
        (r'"\U0001f600"', "😀"),
        (r'"\U00110000"', r"\U00110000"),
        (r'"\400"', "\0"),
        (r'"\303\251"', "é"),
        (r'"\Xc3" ' + "'\\xa9'", "é"),
        (r'"\303" # half' + '\n"\\251"', "é"),
        (r'"\?"', "?"),
        (r'"\1234\0"', "S4\0"),
        (r'"\"\\\'\n"', "\"\\'\n"),
        ("'\"\\101\t'", '"A\t'),
        (r'"a\\" "b"', "a\\b"),
    ],
)
def test_strings_are_unescaped_as_triton_does(literal, value):
    """Surrogate pairs, octal and hexadecimal bytes over several literals, and escapes that Python lacks."""
    assert read(f"name: {literal} max_batch_size: 3").name == value


@pytest.mark.parametrize(
    "literal", [r'"\377"', r'"\ud800"', r'"\ude00\ud83d"', r'"\ud83d" "\ude00"', r'"\xe9"']
)
def test_strings_that_are_no_utf8_are_read_and_told(literal):
    """Triton takes them; a config that is to be written anew is refused."""
    text = f"max_batch_size: 3\nname: {literal}\n"
    found = as_triton_reads(text)
    assert found.garbled == (2,)
    assert text_format.Parse(found.text, model_config()).max_batch_size == 3
    with pytest.raises(InputInvalid) as refused:
        read(text)
    assert refused.value.evidence[0].line == 2


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("input { dims: [ - 1, -\n2, - # two\n 0x3, -\t010 ] }", "input { dims: [-1, -2, -3, -8] }"),
        ("response_cache { enable: 0x1 }", "response_cache { enable: true }"),
        ("response_cache { enable: 01 }", "response_cache { enable: true }"),
        ("input { optional: 00 }", "input { optional: false }"),
        ("input { data_type: 013 }", "input { data_type: TYPE_FP32 }"),
        ("instance_group { kind: 0X2 }", "instance_group { kind: KIND_CPU }"),
        (
            "sequence_batching { direct { minimum_slot_utilization: - inf } }",
            "sequence_batching { direct { minimum_slot_utilization: -inf } }",
        ),
    ],
)
def test_numbers_are_read_as_triton_does(text, whole):
    """A minus may stand apart; booleans and enums may be hexadecimal or octal."""
    assert read(text) == read(whole)


@pytest.mark.parametrize(
    "token",
    [
        "input { dims: [ +1 ] }",
        "max_batch_size: 0b1",
        "max_batch_size: 0o1",
        "max_batch_size: 1_0",
        "max_batch_size: - -1",
        "max_batch_size: 08",
        "max_batch_size: 0x",
        r'name: "\q"',
        r'name: "\8"',
        r'name: "\x"',
        r'name: "\u12"',
        r'name: "\U00200000"',
        'name: "a',
        'name: "a\\\nb"',
        "sequence_batching { direct { minimum_slot_utilization: 010 } }",
        "sequence_batching { direct { minimum_slot_utilization: 0x1 } }",
        "sequence_batching { direct { minimum_slot_utilization: 1_0.5 } }",
    ],
)
def test_what_triton_refuses_is_refused_with_its_line(token):
    """Also where Python's own parser takes it."""
    with pytest.raises(InputInvalid) as refused:
        read(f"# first\n\n{token}\n")
    assert refused.value.code == "config-unreadable"
    assert refused.value.evidence[0].line == 3


def test_a_number_too_large_for_an_enum_is_refused():
    """Python's parser fails in a way of its own."""
    with pytest.raises(InputInvalid):
        read("input { data_type: 99999999999999999999 }")


def test_a_place_is_that_of_the_token():
    """1-based line and column."""
    with pytest.raises(Refused) as refused:
        rewritten('a: 1\n  b: "x\\q"', frozenset())
    assert (refused.value.line, refused.value.column) == (2, 8)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "a",
                ":",
                " ",
                "\n",
                "-",
                "+",
                "0",
                "0x1",
                "1",
                ".",
                "'",
                '"',
                "\\",
                "n",
                "777",
                "\0",
                "é",
                "#",
                "{",
                "\\ud83d",
            ]
        )
    )
)
def test_any_text_is_refused_or_keeps_its_lines(pieces):
    """Nothing else is raised, and what both parsers read alike stays as it is."""
    text = "".join(pieces)
    try:
        found = rewritten(text, frozenset({"a"})).text
    except Refused:
        return
    assert found.count("\n") == text.count("\n")
    if not {"-", "\\", "0"} & set(text):
        assert found == text
