"""Reading and writing tensors: the fast way and the full way say the same, and nothing is lost."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repobuild_serve.config.settings import ModelSettings, TensorConfig
from repobuild_serve.core.ticket import Answer, OutputTensor
from repobuild_serve.datatypes import BY_WIRE_NAME
from repobuild_serve.errors import RequestError
from repobuild_serve.wire.classification import read_labels
from repobuild_serve.wire.json_fast import reader
from repobuild_serve.wire.json_large import LARGE, large_reader
from repobuild_serve.wire.json_numbers import number_rows
from repobuild_serve.wire.json_request import Reading, read_request
from repobuild_serve.wire.json_text import deeper_than, load_json
from repobuild_serve.wire.plan import InferPlan
from repobuild_serve.wire.response import BatchResponses
from repobuild_serve.wire.strings import count_strings, pack, unpack_strings

INTEGERS = ["INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"]


def plan_of(*inputs: TensorConfig, outputs: tuple[TensorConfig, ...] = (), batch: int = 64) -> InferPlan:
    model = ModelSettings(
        name="m",
        folder=Path(),
        platform="",
        backend="",
        max_batch_size=batch,
        inputs=inputs,
        outputs=outputs or tuple(tensor(item.datatype.wire, item.dims, "OUT") for item in inputs[:1]),
        batching=None,
        instance_names=(),
        parameters={},
        graph_level=0,
        default_filename="",
        metric_tags={},
        warmup=(),
        decoupled=False,
        steps=(),
        message=None,
    )
    return InferPlan(model, 1, [()] * max(1, len(outputs)))


def tensor(wire: str, dims: tuple[int, ...] = (2,), name: str = "IN") -> TensorConfig:
    return TensorConfig(name, BY_WIRE_NAME[wire], dims, dims)


def full(plan, body, length=None):
    return read_request(plan, body, length, Reading(0), 1 << 26)


def body_of(data, shape, wire="FP32", **more):
    entry = {"name": "IN", "datatype": wire, "shape": shape, "data": data}
    return json.dumps({"inputs": [entry], **more}).encode()


JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)


@given(
    data=st.one_of(
        JSON_VALUE,
        st.lists(st.floats() | st.integers() | st.booleans(), min_size=1, max_size=6),
        st.lists(st.lists(st.floats() | st.integers() | st.none(), max_size=3), max_size=3),
    ),
    shape=st.one_of(
        st.tuples(st.integers(0, 3), st.just(2)).map(list), st.lists(JSON_VALUE, max_size=3), JSON_VALUE
    ),
    wire=st.sampled_from(["FP32", "FP64", "INT8", "UINT64", "INT32", "fp32"]),
    request_id=st.none() | st.text(max_size=3) | st.integers(),
    separators=st.sampled_from([(",", ":"), (", ", ": ")]),
)
@settings(max_examples=1500, deadline=None)
def test_the_fast_reader_accepts_nothing_that_the_full_one_reads_otherwise(
    data, shape, wire, request_id, separators
):
    plan = plan_of(tensor(wire.upper()))
    readers = [reader(plan), large_reader(plan, lambda body, arrived: pytest.fail("no simdjson"))]
    document = {"inputs": [{"name": "IN", "datatype": wire, "shape": shape, "data": data}]}
    if request_id is not None:
        document["id"] = request_id
    bodies = [
        # A good one first, so that shapes and surroundings have been met.
        body_of([1, 1], [1, 2], wire.upper()),
        body_of([1, 1, 1, 1], [2, 2], wire.upper()),
        json.dumps(document, separators=separators).encode(),
    ]
    for body, fast in itertools.product(bodies * 2, readers):
        quick = fast(body, 0)
        try:
            ticket, asked = full(plan, body)
        except RequestError:
            assert quick is None
            continue
        if quick is not None:
            assert bytes(quick[0].inputs[0]) == bytes(ticket.inputs[0])
            assert (quick[0].rows, quick[0].shapes[0], quick[0].key) == (
                ticket.rows,
                ticket.shapes[0],
                ticket.key,
            )
            assert quick[1].request_id == asked.request_id


@given(
    data=st.lists(st.lists(st.floats(width=32), min_size=2, max_size=2), min_size=1, max_size=5),
    names=st.permutations(["A", "B"]),
)
@settings(deadline=None)
def test_the_fast_reader_of_many_inputs(data, names):
    plan = plan_of(tensor("FP64", name="A"), tensor("FP64", name="B"))
    document = {
        "inputs": [
            {
                "name": name,
                "datatype": "FP64",
                "shape": [len(data), 2],
                "data": data if name == "A" else [[1, 2]] * len(data),
            }
            for name in names
        ]
    }
    body = json.dumps(document).encode()
    ticket, _ = full(plan, body)
    quick = reader(plan)(body, 0)
    if all(math.isfinite(value) for row in data for value in row):
        assert quick is not None
        assert [bytes(part) for part in quick[0].inputs] == [bytes(part) for part in ticket.inputs]
    read = np.frombuffer(ticket.inputs[0], dtype="<f8").reshape(-1, 2)
    np.testing.assert_array_equal(read, np.array(data))


def test_the_usual_request_is_read_the_fast_way():
    plan = plan_of(tensor("FP32"))
    fast = reader(plan)
    full(plan, body_of([1, 2], [1, 2]))
    for body in (
        body_of([1, 2.5], [1, 2]),
        body_of([[1, 2.5]], [1, 2]),
        body_of([1, 2.5], [1, 2], id="x"),
        body_of([1e300, 1e-5], [1, 2], "FP32").replace(b"1e+300", b"1e3"),
    ):
        assert fast(body, 0) is not None


@given(st.data())
@settings(deadline=None)
def test_integers_are_cut_to_their_type(data):
    wire = data.draw(st.sampled_from(INTEGERS))
    low, high = (0, 2**64 - 1) if wire.startswith("U") else (-(2**63), 2**63 - 1)
    values = data.draw(st.lists(st.integers(low, high), min_size=2, max_size=2))
    plan = plan_of(tensor(wire))
    ticket, _ = full(plan, body_of(values, [1, 2], wire))
    wide = np.array(values, dtype=np.uint64 if wire.startswith("U") else np.int64)
    assert bytes(ticket.inputs[0]) == wide.astype(BY_WIRE_NAME[wire].numpy).tobytes()


@given(st.lists(st.floats(width=32), min_size=1, max_size=9))
def test_floats_survive_the_way_to_json_and_back(values):
    array = np.array([values], dtype=np.float32)
    (text,) = number_rows(array)
    back = np.array(json.loads(b"[" + text + b"]"), dtype=np.float32)
    np.testing.assert_array_equal(back, array[0])
    assert all(b"." in part or b"e" in part or b"N" in part or b"I" in part for part in text.split(b","))


@given(st.lists(st.binary(max_size=12), max_size=6))
def test_strings_are_packed_and_unpacked(elements):
    packed = pack(elements)
    assert unpack_strings(packed) == elements
    assert count_strings(packed) == (len(elements), 0, 0)


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=4), st.integers(1, 100))
def test_a_cut_string_is_noticed(elements, cut):
    packed = pack(elements)
    cut = min(cut, len(packed))
    count, left, announced = count_strings(packed[:-cut])
    rest = packed[:-cut]
    whole = 0
    position = 0
    for element in elements:
        position += 4 + len(element)
        whole += position <= len(rest)
    assert count == whole
    if sum(4 + len(element) for element in elements[:whole]) != len(rest):
        assert left or announced > 0


@given(JSON_VALUE.filter(lambda value: isinstance(value, list | dict)))
def test_depth(value):
    def deep(item):
        if isinstance(item, dict):
            item = list(item.values())
        return 1 + max(map(deep, item), default=0) if isinstance(item, list) else 0

    text = json.dumps(value).encode()
    assert not deeper_than(text, deep(value))
    assert deeper_than(text, deep(value) - 1)


def test_depth_is_followed_over_long_texts():
    flat = b"[" + b"[],{}," * 50_000 + b"1"
    assert not deeper_than(flat + b"]", 2)
    assert deeper_than(flat + b",[[]]]", 2)


@given(st.binary(max_size=60) | st.text(alphabet='[]{}":,\\ntrue012.eE-', max_size=60).map(str.encode))
@settings(max_examples=500)
def test_any_bytes_are_parsed_or_refused(body):
    text = ""
    try:
        load_json(body)
    except RequestError as error:
        text = error.text
    assert text.startswith("failed to parse the request JSON buffer: ") or not text


@given(st.binary(max_size=120))
@settings(max_examples=300)
def test_any_body_is_read_or_refused(body):
    for plan in (
        plan_of(tensor("FP32")),
        plan_of(tensor("BYTES", (1,))),
        plan_of(tensor("FP32", (-1,)), batch=0),
    ):
        for length in (None, 0, len(body) // 2):
            for whole in (body, b'{"inputs":[' + body + b"]}"):
                try:
                    full(plan, whole, length)
                except RequestError:
                    continue


@given(
    rows=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    width=st.integers(0, 3),
    ids=st.lists(st.text(max_size=4), min_size=5, max_size=5),
)
def test_a_batch_is_split_among_its_requests(rows, width, ids):
    total = sum(rows)
    array = np.arange(total * width, dtype=np.float32).reshape(total, width)
    texts = [pack([b"s%d" % row] * width) for row in range(total)]
    outputs = (tensor("FP32", (width,), "A"), tensor("BYTES", (width,), "B"))
    plan = plan_of(tensor("FP32"), outputs=outputs)
    answer = Answer(
        list(range(len(rows))),
        rows,
        [
            OutputTensor("A", BY_WIRE_NAME["FP32"], (width,), array),
            OutputTensor("B", BY_WIRE_NAME["BYTES"], (width,), None, texts),
        ],
    )
    responses = BatchResponses(plan, answer)
    start = 0
    for count, request_id in zip(rows, ids, strict=False):
        stop = start + count
        document = json.loads(responses.json(start, stop, request_id))
        assert document.get("id", "") == request_id
        numbers, strings = document["outputs"]
        assert numbers["shape"] == strings["shape"] == [count, width]
        assert numbers["data"] == array[start:stop].ravel().tolist()
        assert strings["data"] == [f"s{row}" for row in range(start, stop) for _ in range(width)]
        header, blobs = responses.mixed(start, stop, request_id, plan.all_binary)
        sizes = [item["parameters"]["binary_data_size"] for item in json.loads(header)["outputs"]]
        assert sizes == [len(blob) for blob in blobs]
        assert blobs == [array[start:stop].tobytes(), b"".join(texts[start:stop])]
        start = stop


@pytest.mark.parametrize("shape", [[1, 2**62], [2**40, 2**40], [2**63, 1]])
def test_shapes_that_no_memory_holds(shape):
    with pytest.raises(RequestError):
        full(plan_of(tensor("FP32", (-1,)), batch=0), body_of([1], shape))


@pytest.mark.parametrize("wire", [*INTEGERS, "FP32", "FP64"])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_large_body_is_read_as_a_small_one_is(wire, rows):
    plan = plan_of(tensor(wire, (700,), "A"), tensor(wire, (2,), "B"))
    rng = np.random.default_rng(0)
    numbers = {
        "A": rng.integers(0, 2**31, (rows, 700)).tolist(),
        "B": rng.integers(-5 if wire.startswith(("I", "F")) else 0, 300, (rows, 2)).tolist(),
    }
    if wire.startswith("FP"):
        numbers["A"] = (rng.normal(size=(rows, 700)) * 1e30).tolist()
        numbers["A"][0][0] = 1e300
    document = {
        "id": "x",
        "inputs": [
            {"name": name, "datatype": wire, "shape": [rows, len(data[0])], "data": data}
            for name, data in numbers.items()
        ],
    }
    body = json.dumps(document).encode()
    assert len(body) > LARGE
    ticket, asked = full(plan, body)
    read = large_reader(plan, lambda body, arrived: None)
    quick = read(body, 0)
    assert quick is not None
    assert [bytes(buffer) for buffer in quick[0].inputs] == [bytes(buffer) for buffer in ticket.inputs]
    assert (quick[0].rows, list(quick[0].shapes), quick[0].context) == (rows, ticket.shapes, ticket.context)
    assert quick[1].request_id == asked.request_id == "x"


def test_a_body_too_large_for_the_parser_is_left_to_the_other_reader():
    plan = plan_of(tensor("FP32"))
    read = large_reader(plan, lambda body, arrived: "other")
    full(plan, body_of([1, 1], [1, 2], "FP32"))
    assert read(body_of([1, 1], [1, 2], "FP32"), 0) != "other"
    assert read(b" " * (4 << 20) + body_of([1, 1], [1, 2], "FP32"), 0) == "other"


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("a\nb\n", ("a", "b")),
        ("a\r\nb", ("a", "b")),
        ("a\n\nc\n", ("a", "", "c")),
        ("a\x0bx\nb\u2028y\nc\x85z\x1c\n", ("a\x0bx", "b\u2028y", "c\x85z\x1c")),
    ],
    ids=["unix", "windows", "gap", "other breaks"],
)
def test_a_label_is_a_line(tmp_path, text, labels):
    (tmp_path / "labels").write_bytes(text.encode())
    assert read_labels(tmp_path, "labels") == labels
