"""The opcode scan: names what loading would import, runs nothing, and is not lost in joblib's arrays."""

import gzip
import io
import lzma
import os
import pickle
import pickletools
import tracemalloc

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from repobuild.sources.containers import open_stream
from repobuild.sources.opcodes import limits
from repobuild.sources.pickle_scan import scan_pickle

ROWS = np.random.default_rng(0).random((40, 3))
SIDE = (ROWS[:, 0] > 0.5).astype(int)
MODELS = {
    "linear": LogisticRegression().fit(ROWS, SIDE),
    "forest": RandomForestClassifier(4, random_state=0).fit(ROWS, SIDE),
    "boosting": HistGradientBoostingClassifier(max_iter=3).fit(ROWS, SIDE),
    "text labels": make_pipeline(StandardScaler(), LogisticRegression()).fit(
        ROWS, np.array(["a", "b"])[SIDE]
    ),
    "object array": OneHotEncoder().fit(np.array([["a"], ["b"]], dtype=object)),
    "text": TfidfVectorizer().fit(["some words", "other words"]),
}
COMPRESSIONS = [0, 3, ("gzip", 3), ("bz2", 3), ("lzma", 3), ("xz", 3)]


class Trap:
    """Runs a shell command when it is unpickled."""

    def __init__(self, command="true"):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def scan(data):
    return scan_pickle(open_stream(io.BytesIO(data)))


def dumped(model, **options):
    stream = io.BytesIO()
    joblib.dump(model, stream, **options)
    return stream.getvalue()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("protocol", range(6))
def test_joblib_files_are_followed_to_their_end(name, protocol):
    found = scan(dumped(MODELS[name], protocol=protocol))
    assert found.complete, found.trouble
    assert any(i.startswith("sklearn.") for i in found.imports)


@pytest.mark.parametrize("compress", COMPRESSIONS, ids=str)
def test_compressed_files_are_followed_too(tmp_path, compress):
    file = tmp_path / "m.joblib"
    joblib.dump(MODELS["forest"], file, compress=compress)
    found = scan(file.read_bytes())
    assert found.complete, found.trouble
    assert "sklearn.ensemble._forest.RandomForestClassifier" in found.imports


@pytest.mark.parametrize("protocol", range(6))
def test_plain_pickles_of_every_protocol(protocol):
    found = scan(pickle.dumps(MODELS["boosting"], protocol))
    assert found.complete, found.trouble


@pytest.mark.parametrize("protocol", range(6))
def test_a_call_is_named_and_not_made(tmp_path, protocol):
    marker = tmp_path / "ran"
    found = scan(pickle.dumps({"model": MODELS["linear"], "note": Trap(f"touch {marker}")}, protocol))
    assert "posix.system" in found.imports
    assert "posix.system" in found.calls
    assert not marker.exists()


def test_a_call_behind_arrays_is_found():
    found = scan(dumped([MODELS["forest"], np.arange(1000), Trap()]))
    assert found.complete
    assert "posix.system" in found.calls


def test_a_call_inside_an_object_array_is_found():
    array = np.empty(2, dtype=object)
    array[:] = ["x", Trap()]
    assert "posix.system" in scan(dumped({"array": array})).calls


def test_a_name_put_together_from_memoized_strings_is_found():
    hostile = (
        pickle.PROTO + b"\x04" + b"\x8c\x05posix\x94\x8c\x06system\x94" + b"0" * 2
        + b"h\x00h\x01\x93" + b"\x8c\x04true\x85R."
    )  # fmt: skip
    pickletools.dis(hostile, io.StringIO())
    assert scan(hostile).calls == ("posix.system",)


@pytest.mark.parametrize("name", ["linear", "forest", "object array"])
def test_a_file_cut_anywhere_is_truncated(name):
    data = dumped(MODELS[name])
    for cut in range(1, len(data), max(1, len(data) // 97)):
        found = scan(data[:cut])
        assert not found.complete
        assert found.truncated, (cut, found)


@pytest.mark.parametrize("compress", [3, ("gzip", 3), ("bz2", 3), ("lzma", 3), ("xz", 3)], ids=str)
def test_a_compressed_file_cut_in_the_middle_is_truncated(tmp_path, compress):
    file = tmp_path / "m.joblib"
    joblib.dump(MODELS["forest"], file, compress=compress)
    data = file.read_bytes()
    assert scan(data[: len(data) // 2]).truncated


def test_a_huge_length_field_takes_no_memory():
    claims = pickle.PROTO + b"\x04" + pickle.BINBYTES8 + (1 << 60).to_bytes(8, "little") + b"abc"
    found = scan(claims)
    assert found.truncated


def test_a_decompression_bomb_is_stopped(monkeypatch):
    bomb = pickle.dumps(b"\0" * (4 << 20), 4)
    import zlib

    found = scan_pickle(open_stream(io.BytesIO(zlib.compress(bomb)), limit=1 << 20))
    assert not found.complete
    assert "larger" in found.trouble


def peak_of(data):
    """What the scan of ``data`` finds, and the most bytes that it held at one time."""
    tracemalloc.start()
    try:
        found = scan(data)
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


LONG = 8 << 20
LONG_ARGUMENTS = {
    "BINBYTES": b"B" + LONG.to_bytes(4, "little") + bytes(LONG),
    "BINBYTES8": b"\x8e" + LONG.to_bytes(8, "little") + bytes(LONG),
    "BYTEARRAY8": b"\x96" + LONG.to_bytes(8, "little") + bytes(LONG),
    "BINSTRING": b"T" + LONG.to_bytes(4, "little") + bytes(LONG),
    "BINUNICODE": b"X" + LONG.to_bytes(4, "little") + bytes(LONG),
    "BINUNICODE8": b"\x8d" + LONG.to_bytes(8, "little") + bytes(LONG),
    "LONG4": b"\x8b" + LONG.to_bytes(4, "little") + bytes(LONG),
    "STRING": b"S'" + b"a" * LONG + b"'\n",
    "UNICODE": b"V" + b"a" * LONG + b"\n",
    "LONG": b"L" + b"1" * LONG + b"L\n",
    "FLOAT": b"F" + b"1" * LONG + b"\n",
    "PERSID": b"P" + b"a" * LONG + b"\n",
}


@pytest.mark.parametrize("opcode", LONG_ARGUMENTS)
def test_long_arguments_are_skipped_over(opcode):
    pickled = LONG_ARGUMENTS[opcode] + b"0cposix\nsystem\n(S'true'\ntR."
    found, peak = peak_of(gzip.compress(pickled, 1))
    assert found.complete, found.trouble
    assert found.calls == ("posix.system",)
    assert peak < LONG // 2


@pytest.mark.parametrize("opcode", LONG_ARGUMENTS)
def test_a_long_argument_cut_off_is_truncated(opcode):
    assert scan(LONG_ARGUMENTS[opcode][:-2]).truncated


@pytest.mark.parametrize("opcode", ["BINUNICODE", "BINUNICODE8", "STRING", "UNICODE", "BINBYTES"])
def test_a_name_too_long_to_be_one_is_not_taken_for_one(opcode):
    found = scan(pickle.PROTO + b"\x04" + LONG_ARGUMENTS[opcode] + b"\x8c\x01a\x93.")
    assert not found.complete
    assert "computed while loading" in found.trouble
    assert not found.truncated


UBJSON = (
    b"{L" + bytes(7) + b"\x06ConfigL" + bytes(7) + b"\x07learner{" + b"x" * 3_000
    + b"L" + bytes(7) + b"\x07version[#L" + bytes(7) + b"\x03i\x03i\x00i\x05" + b"y" * 100_000
)  # fmt: skip
JSON = b'{"Config":{"learner":{},"version":[1,7,6]},"Model":{}}'


@pytest.mark.parametrize(("blob", "version"), [(UBJSON, "3.0.5"), (JSON, "1.7.6")])
@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_the_version_of_a_pickled_booster_is_read(blob, version, protocol):
    found = scan(pickle.dumps({"handle": bytearray(blob), "note": Trap()}, protocol))
    assert found.complete
    assert found.versions == {"xgboost": (version,)}
    assert "posix.system" in found.calls


@pytest.mark.parametrize(
    "blob", [b"{L" + b"z" * 100_000, b'{"version":[1,2,3]}', b'{"learner":1,"version":[1,2]}']
)
def test_bytes_that_are_no_booster_have_no_version(blob):
    found = scan(pickle.dumps(blob))
    assert found.complete
    assert found.versions == {}


HOSTILE = {
    "opcodes": b"N0" * 60_000,
    "stack": b"N" * 30_000,
    "marks": b"(" * 30_000,
    "memo": b"N" + b"\x94" * 30_000,
    "texts": (b"X\x00\x08\x00\x00" + b"a" * 2048 + b"0") * 1_000,
    "tuples": b"N" + b"\x85" * 30_000,
    "dictionaries": b"}0" * 30_000,
    "imports": b"".join(b"cm\nn%d\n0" % i for i in range(10_000)),
}


@pytest.fixture
def small_limits(monkeypatch):
    monkeypatch.setattr(limits, "MAX_OPCODES", 100_000)
    monkeypatch.setattr(limits, "MAX_HELD", 20_000)
    monkeypatch.setattr(limits, "MAX_KEPT_BYTES", 1 << 20)


@pytest.mark.parametrize("what", HOSTILE)
def test_what_a_file_may_make_the_scanner_do_and_keep_is_limited(small_limits, what):
    found, peak = peak_of(gzip.compress(b"cposix\nsystem\n0" + HOSTILE[what] + b"."))
    assert not found.complete
    assert "more than" in found.trouble or "more names" in found.trouble
    assert not found.truncated
    assert not found.malformed
    assert "posix.system" in found.imports
    assert peak < 8 << 20


def test_nested_pickles_share_one_budget(small_limits):
    arrays = []
    for _ in range(12):
        array = np.empty(1, dtype=object)
        array[0] = tuple([[] for _ in range(5_000)])
        arrays.append(array)
    assert scan(dumped(arrays[:1])).complete
    found = scan(dumped(arrays))
    assert "opcodes" in found.trouble


def test_a_forest_in_a_plain_pickle_takes_few_opcodes(monkeypatch):
    monkeypatch.setattr(limits, "MAX_OPCODES", 10_000)
    assert scan(pickle.dumps(MODELS["forest"])).complete


def test_the_dictionary_of_an_lzma_file_takes_no_memory():
    data = bytearray(lzma.compress(pickle.dumps(MODELS["linear"]), lzma.FORMAT_ALONE))
    assert scan(bytes(data)).complete
    data[1:5] = (1 << 31).to_bytes(4, "little")
    found = scan(bytes(data))
    assert not found.complete
    assert not found.truncated


@pytest.mark.parametrize("problem", [MemoryError, RecursionError])
def test_running_out_of_memory_is_a_trouble_of_the_scan(problem):
    class Failing(io.BytesIO):
        def read1(self, size=-1):
            raise problem

    found = scan_pickle(open_stream(Failing(b"\x80\x04.")))
    assert found.trouble
    assert not found.truncated


def test_a_line_may_be_as_long_as_the_file():
    model = KNeighborsClassifier().fit(np.random.default_rng(0).random((4000, 3)), np.arange(4000) % 2)
    data = pickle.dumps(model, 0)
    assert max(map(len, data.split(b"\n"))) > 1 << 16
    found = scan(data)
    assert found.complete, found.trouble
    assert scan(data[: len(data) // 2]).truncated


def test_a_damaged_stream_is_not_called_truncated():
    data = bytearray(gzip.compress(pickle.dumps(MODELS["linear"])))
    data[12:] = bytes(0xFF for _ in data[12:])
    found = scan(bytes(data))
    assert not found.complete
    assert not found.truncated


def test_a_compression_that_only_joblib_reads_is_a_trouble_of_the_scan():
    found = scan(b"\x04\x22\x4d\x18" + bytes(40))
    assert "only joblib" in found.trouble
    assert not found.malformed


def test_names_are_read_as_the_unpickler_reads_them():
    assert scan("cmodül\nna me\n.".encode()).imports == ("modül.na me",)
    assert scan(b"cpo\\x73ix\nsystem\n.").imports == ("po\\x73ix.system",)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_make_the_scanner_fail(data):
    scan(data)
    scan(pickle.PROTO + b"\x04" + data)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_changed_byte_makes_the_scanner_fail(data):
    good = bytearray(dumped(MODELS["linear"]))
    at = data.draw(st.integers(0, len(good) - 1))
    good[at] = data.draw(st.integers(0, 255))
    scan(bytes(good))
