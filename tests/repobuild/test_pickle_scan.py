"""The opcode scan: names what loading would import, runs nothing, and is not lost in joblib's arrays."""

import io
import os
import pickle
import pickletools

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from repobuild.sources.containers import open_stream
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
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
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
