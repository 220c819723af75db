"""Pickles that hide code from the scan where joblib's unpickler reads on in its own way."""

import io
import struct

import joblib
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier

from repobuild.sources.containers import open_stream
from repobuild.sources.pickle_scan import scan_pickle


def text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


CALL = b"cposix\nsystem\n" + text("true") + b"\x85R"
WRAPPER = b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n"
START = b"\x80\x02"


def dtype(code, state=b""):
    made = b"cnumpy\ndtype\n" + text(code) + b"\x89\x88\x87R"
    return made + state + b"b" if state else made


def state_of_dtype(size, flags, names=b"N", fields=b"N"):
    return (
        b"(K\x03"
        + text("|")
        + b"N"
        + names
        + fields
        + b"K"
        + bytes([size])
        + b"K\x01K"
        + bytes([flags])
        + b"t"
    )


def state(of_type, length=1):
    keys = text("subclass") + b"cnumpy\nndarray\n" + text("shape") + b"K" + bytes([length]) + b"\x85"
    return b"}(" + keys + text("order") + text("C") + text("dtype") + of_type + text("allow_mmap") + b"\x89u"


def wrapped(of_type, after, length=1):
    return START + WRAPPER + b")\x81" + state(of_type, length) + b"b" + after


INNER = START + CALL + b"."
FIELDS = b"}" + text("a") + dtype("O8") + b"K\x00\x86s"
TRICKS = {
    "objects among the fields of a structured type": wrapped(
        dtype("V60", state_of_dtype(60, 63, text("a") + b"\x85", FIELDS)), INNER.ljust(60, b"x") + b"."
    ),
    "objects by the flags alone": wrapped(dtype("V60", state_of_dtype(60, 1)), INNER.ljust(60, b"x") + b"."),
    "an object type behind a sign of byte order": wrapped(dtype("|O8"), INNER + b"."),
    "a size that the state changes": wrapped(
        dtype("S40", state_of_dtype(1, 0)), b"y" + CALL + b"0." + bytes(40) + b"."
    ),
    "a wrapper made by a function": (
        START + b"ccopyreg\n__newobj__\n" + WRAPPER + b"\x85R" + state(dtype("u1")) + b"b." + CALL + b"."
    ),
    "a class that goes through a list": (
        START + b"coperator\ncall\n" + b"](" + WRAPPER + b"e\x85R" + state(dtype("u1")) + b"b." + CALL + b"."
    ),
    "a wrapper under another name": (
        b"\x80\x04"
        + text("joblib._store_backends")
        + text("numpy_pickle.NumpyArrayWrapper")
        + b"\x93)\x81"
        + state(dtype("u1"))
        + b"b."
        + CALL
        + b"."
    ),
    "an old wrapper that loads another file": START
    + b"cjoblib.numpy_pickle_compat\nNDArrayWrapper\n)\x81}b.",
    "a wrapper that is built twice": wrapped(
        dtype("O8"), INNER + WRAPPER + b")\x81q\x00" + state(dtype("u1")) + b"b\x00" + b"h\x00}b" + b"."
    ),
    "a type made by another function": (
        START + WRAPPER + b")\x81" + state(b"cbuiltins\ngetattr\n" + text("u1") + b"\x85R") + b"b\x00."
    ),
}


@pytest.mark.parametrize("name", TRICKS)
def test_what_is_hidden_is_found_or_the_scan_says_that_it_was_lost(name):
    found = scan_pickle(open_stream(io.BytesIO(TRICKS[name])))
    assert "posix.system" in found.calls or not found.complete


def test_the_first_tricks_are_found_as_calls():
    for name in list(TRICKS)[:4]:
        assert "posix.system" in scan_pickle(open_stream(io.BytesIO(TRICKS[name]))).calls, name


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(3, dtype=[("a", "f8"), ("b", "S4")]),
        np.array(["a", "bc"]),
        np.array([b"a", b"bc"]),
        np.array([1, "x", None], dtype=object),
        np.array(["2026-01-01"], dtype="M8[ns]"),
        np.array([True]),
        np.arange(4, dtype=">i2"),
        [np.zeros(2), np.zeros(2)],
        RandomForestClassifier(3, random_state=0).fit(np.eye(4), [0, 1, 0, 1]),
        KNeighborsClassifier(1).fit(np.eye(4), ["a", "b", "a", "b"]),
    ],
    ids=lambda value: type(value).__name__ + str(getattr(value, "dtype", "")),
)
@pytest.mark.parametrize("protocol", range(6))
def test_what_joblib_writes_itself_is_followed_to_its_end(value, protocol):
    file = io.BytesIO()
    joblib.dump(value, file, protocol=protocol)
    found = scan_pickle(open_stream(io.BytesIO(file.getvalue())))
    assert (found.complete, found.trouble) == (True, "")


def test_numbers_of_protocol_0_are_read_in_any_base():
    assert scan_pickle(open_stream(io.BytesIO(b"(I0x10\nL0x10L\nl."))).complete
