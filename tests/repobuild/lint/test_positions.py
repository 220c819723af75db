"""The scanner of places, against protobuf's own parser."""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from repobuild.lint.positions import Place, scan

SPACE = st.sampled_from([" ", "  ", "\n", "\t", " # a { comment }: 'x'\n", "\r\n", "\n\n  "])
END = st.sampled_from(["", "", ",", ";", " ;"])


class Writer:
    """Writes a message in randomly chosen forms, and notes where each field begins."""

    def __init__(self, draw) -> None:
        self.draw = draw
        self.text = ""
        self.places: dict[Any, Place] = {}
        self.values: dict[Any, Any] = {}

    def put(self, piece: str) -> None:
        self.text += piece

    def here(self) -> Place:
        line = self.text.count("\n") + 1
        return Place(line, len(self.text) - (self.text.rfind("\n") + 1) + 1)

    def space(self) -> None:
        self.put(self.draw(SPACE))

    def message(self, message: Any, path: tuple) -> None:
        for field, value in message.ListFields():
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                for index, key in enumerate(sorted(value)):
                    self.entry(field, key, value[key], (*path, (field.name, index)))
            elif field.is_repeated:
                self.repeated(field, list(value), path)
            else:
                self.name(field, (*path, (field.name, 0)))
                self.value(field, value, (*path, (field.name, 0)), named=True)
                self.finish()

    def name(self, field: Any, path: tuple) -> None:
        self.places[path] = self.here()
        self.put(field.name)

    def finish(self) -> None:
        self.put(self.draw(END))
        self.space()

    def entry(self, field: Any, key: Any, value: Any, path: tuple) -> None:
        self.name(field, path)
        self.open_message()
        kinds = field.message_type.fields_by_name
        for name, item in (("key", key), ("value", value)):
            self.name(kinds[name], (*path, (name, 0)))
            self.value(kinds[name], item, (*path, (name, 0)), named=True)
            self.finish()
        self.close_message()
        self.finish()

    def open_message(self) -> None:
        self.put(self.draw(st.sampled_from(["", ":", " : "])))
        self.bracket()

    def bracket(self) -> None:
        self.closing = [*getattr(self, "closing", []), self.draw(st.sampled_from("}>"))]
        self.put("{" if self.closing[-1] == "}" else "<")
        self.space()

    def close_message(self) -> None:
        self.put(self.closing.pop())

    def repeated(self, field: Any, items: list, path: tuple) -> None:
        as_list = self.draw(st.booleans())
        if not as_list:
            for index, item in enumerate(items):
                self.name(field, (*path, (field.name, index)))
                self.value(field, item, (*path, (field.name, index)), named=True)
                self.finish()
            return
        self.put(field.name)
        self.put(self.draw(st.sampled_from([":", " : "])))
        self.put("[")
        self.space()
        for index, item in enumerate(items):
            if index:
                self.put(",")
                self.space()
            self.places[(*path, (field.name, index))] = self.here()
            self.value(field, item, (*path, (field.name, index)), named=False)
            self.space()
        self.put("]")
        self.finish()

    def value(self, field: Any, value: Any, path: tuple, *, named: bool) -> None:
        if field.message_type is not None:
            if named:
                self.open_message()
            else:
                self.bracket()
            self.message(value, path)
            self.close_message()
            return
        if named:
            self.put(":")
            self.put(self.draw(st.sampled_from(["", " ", "\n "])))
        self.values[path] = self.scalar(field, value)

    def scalar(self, field: Any, value: Any) -> str:
        if field.enum_type is not None:
            text = field.enum_type.values_by_number[value].name
            self.put(text)
            return text
        if isinstance(value, str):
            cut = self.draw(st.integers(0, len(value)))
            parts = [value[:cut], value[cut:]] if self.draw(st.booleans()) else [value]
            for part in parts:
                quote = self.draw(st.sampled_from("'\""))
                body = text_format.text_encoding.CEscape(part, as_utf8=self.draw(st.booleans()))
                self.put(f"{quote}{body}{quote}")
                self.space()
            return value
        text = str(value).lower() if isinstance(value, bool) else repr(value)
        self.put(text)
        return text


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=6)
SMALL = st.integers(-2, 9)
TENSORS = st.builds(
    model_config_pb2.ModelInput,
    name=NAMES,
    data_type=st.integers(0, 14),
    dims=st.lists(SMALL, max_size=3),
    reshape=st.none() | st.builds(model_config_pb2.ModelTensorReshape, shape=st.lists(SMALL, max_size=2)),
    optional=st.booleans(),
)
CONFIGS = st.builds(
    model_config_pb2.ModelConfig,
    name=NAMES,
    max_batch_size=st.integers(-3, 2**31 - 1),
    input=st.lists(TENSORS, max_size=3),
    parameters=st.dictionaries(
        NAMES, st.builds(model_config_pb2.ModelParameter, string_value=NAMES), max_size=3
    ),
    cc_model_filenames=st.dictionaries(NAMES, NAMES, max_size=2),
    dynamic_batching=st.none()
    | st.builds(
        model_config_pb2.ModelDynamicBatching,
        preferred_batch_size=st.lists(SMALL, max_size=3),
        max_queue_delay_microseconds=st.integers(0, 2**64 - 1),
        priority_queue_policy=st.dictionaries(
            st.integers(0, 3),
            st.builds(
                model_config_pb2.ModelQueuePolicy,
                timeout_action=st.integers(0, 1),
                max_queue_size=st.integers(0, 9),
            ),
            max_size=2,
        ),
    ),
)


@st.composite
def written(draw):
    """A message, its text in some form, and where the fields stand."""
    config = draw(CONFIGS)
    writer = Writer(draw)
    writer.space()
    writer.message(config, ())
    return config, writer


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(written())
def test_places_and_values_are_those_of_the_text_in_any_form(case):
    """protobuf reads the message back, and the scanner finds each of its fields where it was written."""
    config, writer = case
    assert text_format.Parse(writer.text, model_config_pb2.ModelConfig()) == config
    found = scan(writer.text)
    assert found.complete
    assert found.places == writer.places
    assert found.values == writer.values


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("{}<>[]:;,\"'#\\\n ab1-.xé"), max_size=60))
def test_any_text_is_survived(text):
    """The scanner never raises, and every place lies in the text."""
    found = scan(text)
    lines = text.split("\n")
    for place in found.places.values():
        assert 1 <= place.line <= len(lines)
        assert 1 <= place.column <= len(lines[place.line - 1])


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("{}<>[]:;,\"'#\n ab"), max_size=40))
def test_what_protobuf_accepts_is_understood_whole(text):
    """A text that protobuf parses, with unknown fields allowed, leaves nothing over."""
    try:
        text_format.Parse(text, model_config_pb2.ModelConfig(), allow_unknown_field=True)
    except (text_format.ParseError, RecursionError):
        return
    assert scan(text).complete


def test_elements_of_lists_have_places_of_their_own():
    """A list over several lines points at its elements; repeated names point at each name."""
    found = scan("input [\n { dims: [ 1,\n  2 ] },\n { dims: 3\n   dims: 4 }\n]")
    assert found.place("input", 0) == Place(2, 2)
    assert found.place("input", 0, "dims", 1) == Place(3, 3)
    assert found.place("input", 1, "dims", 1) == Place(5, 4)
    assert found.place("input", 1, "reshape") == Place(4, 2)
    assert found.place("output") is None


def test_entries_of_maps_are_found_by_key():
    """The last entry of a key counts, as it does for protobuf."""
    found = scan('parameters { key: "a" value { string_value: "1" } }\nparameters { key: \'a\' }\n')
    assert found.entry("a", "parameters") == ("parameters", 1)
    assert found.entry("b", "parameters") == ("parameters",)


def test_strings_are_joined_and_unescaped():
    """Adjacent literals are one value; octal, hexadecimal and named escapes are read."""
    found = scan(r"""name: "a\n" 'b\x41\101' "\u00e9" """)
    assert found.values[("name", 0),] == "a\nbAAé"


def test_a_deep_nesting_is_no_recursion():
    """Frames stand in for recursion; what is deeper than protobuf reads is given up."""
    assert scan("a {" * 90 + "}" * 90).complete
    deep = scan("a {" * 50_000 + "}" * 50_000)
    assert not deep.complete
    assert len(deep.places) <= 102
