"""Responses of models that answer request by request."""

from __future__ import annotations

import math

import pytest

from repobuild_serve.core.ticket import Tensor
from repobuild_serve.datatypes import BY_WIRE_NAME
from repobuild_serve.errors import RequestError
from repobuild_serve.wire.classification import check_class_count
from repobuild_serve.wire.json_numbers import scalar_json
from repobuild_serve.wire.single_response import json_elements


def tensor(wire, shape, data):
    return Tensor("T", BY_WIRE_NAME[wire], shape, data)


@pytest.mark.parametrize(
    ("wire", "shape", "data", "text"),
    [
        pytest.param("BOOL", (2,), b"\x01\x00", b"true,false", id="bool"),
        pytest.param("FP32", (1,), b"\x00\x00\xc0\x7f", b"NaN", id="nan"),
        pytest.param("UINT64", (1,), b"\xff" * 8, b"18446744073709551615", id="uint64"),
        pytest.param("FP32", (0, 3), b"", b"", id="no-numbers"),
        pytest.param("BYTES", (0,), b"", b"", id="no-texts"),
        pytest.param("BYTES", (2,), b"\x01\x00\x00\x00\xff\x00\x00\x00\x00", b'"\xff",""', id="not-utf8"),
        pytest.param("INT8", (), b"\xff", b"-1", id="scalar"),
    ],
)
def test_elements_as_json(wire, shape, data, text):
    assert json_elements(tensor(wire, shape, data)) == text


@pytest.mark.parametrize("wire", ["FP16", "BF16"])
def test_what_json_cannot_carry(wire):
    with pytest.raises(RequestError, match=f"sending {wire} data via JSON is not supported"):
        json_elements(tensor(wire, (1,), b"\x00\x00"))


@pytest.mark.parametrize(
    ("wire", "shape", "data"),
    [
        ("INT32", (2,), b"\x00" * 4),
        ("BYTES", (2,), b"\x00" * 4),
        ("BYTES", (1,), b"\x05\x00\x00\x00a"),
        ("BYTES", (1,), b"\x00" * 7),
    ],
    ids=["numbers", "texts", "cut-text", "cut-length"],
)
def test_data_that_do_not_fit_the_shape(wire, shape, data):
    with pytest.raises(RequestError, match="output tensor shape does not match size of output for 'T'"):
        json_elements(tensor(wire, shape, data))


def test_parameters_as_json():
    assert scalar_json(True) == b"true"
    assert scalar_json(2**63) == b"9223372036854775808"
    assert scalar_json(math.inf) == b"Infinity"
    assert scalar_json('\u00e9"\udcff') == b'"\xc3\xa9\\"\xff"'


def test_very_many_classes_are_refused():
    check_class_count(1_000_000)
    with pytest.raises(RequestError, match="classification output tensor too large"):
        check_class_count(1_000_001)
