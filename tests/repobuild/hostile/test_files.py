"""Hostile files through the real command line, without any trust: each is refused, and nothing of it runs."""

import importlib.util
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("hostile_files", Path(__file__).with_name("files.py"))
files = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(files)

MIB = 1 << 20
PEAK = 200 * MIB
"""Five million objects that the scan holds take less; each file here is smaller than 64 MiB."""

RUNS_A_COMMAND = {
    "trap", "getattr_chain", "evaluated", "executed", "by_obj", "names_from_the_memo",
    "pickle_in_bytes", "joblib_object_array", "behind_noise", "extension",
}  # fmt: skip
NAMES = {
    "trap": ["CALL posix.system"],
    "getattr_chain": ["CALL builtins.getattr", "CALL builtins.__import__", "CALL operator.add"],
    "evaluated": ["CALL builtins.eval"],
    "executed": ["CALL builtins.exec"],
    "by_obj": ["CALL posix.system"],
    "by_newobj_ex": ["CALL subprocess.Popen"],
    "by_setstate": ["import posix.system", "CALL types.SimpleNamespace"],
    "names_from_the_memo": ["CALL posix.system"],
    "names_computed": ["CALL operator.concat", "computed while loading"],
    "extension": ["CALL copyreg.add_extension", "CALL copyreg.extension_240"],
    "pickle_in_bytes": ["CALL _pickle.loads"],
    "joblib_object_array": ["CALL posix.system"],
    "joblib_nested_wrappers": ["CALL posix.system"],
    "behind_noise": ["CALL posix.system"],
    "protocol_255": ["CALL posix.system"],
    "no_stop": ["truncated"],
    "invalid_after_harm": ["CALL posix.system", "no opcode"],
    "terminal_escapes": ["CALL posix.system", "\\x1b[2J", "\\u202e"],
    "memo_doubling": ["CALL posix.system"],
    "length_of_2_31": ["truncated"],
    "length_of_2_63": ["truncated"],
    "negative_length": ["length below zero", "CALL posix.system"],
    "frame_of_2_60": ["CALL posix.system"],
    "long_integer": ["CALL posix.system"],
    "deep_tuples": ["CALL posix.system"],
    "deep_marks": ["CALL posix.system"],
    "gzip_members": ["CALL posix.system"],
    "lzma_dictionary": ["Memory usage limit"],
    "compressed_twice": ["not a joblib or pickle file"],
    "torch_zip": ["net/data.pkl: loading it would CALL posix.system"],
    "torch_old": ["(pickle 4): loading it would CALL posix.system"],
    "torchscript": ["m/constants.pkl: loading it would CALL posix.system"],
    "npz_with_objects": ["b.npy: loading it would CALL posix.system"],
    "npy_with_objects": ["loading it would CALL posix.system"],
    "zip_in_zip": ["inner.zip!net/data.pkl: loading it would CALL posix.system"],
    "zips_all_the_way": [
        "a.zip!a.zip!data.pkl: loading it would CALL posix.system",
        "nested more than 3 deep",
    ],
    "overlapping_members": ["overlaps", "CALL posix.system"],
    "traversal": ["leads out of the archive's folder", "CALL posix.system"],
    "lying_sizes": ["m/data.pkl"],
    "lying_names": ["m/data.pkl", "differ"],
    "directory_of_4_gib": ["list of members takes 4294967295 bytes"],
    "cut_zip": ["cut off"],
    "encrypted_zip": ["encrypted"],
    "zip_with_lzma": ["compressed by method 14"],
    "tar_of_joblib": ["is a tar archive"],
    "polyglot": ["CALL posix.system"],
    "skops_traversal": ["leads out of the archive's folder"],
    "skops_declared_huge": ["2147483648 bytes"],
}
STATUSES = {"tar_of_joblib": 5} | dict.fromkeys(
    (
        "zip_with_lzma", "encrypted_zip", "lying_names",
        "no_stop", "length_of_2_31", "length_of_2_63", "compressed_twice",
        "directory_of_4_gib", "cut_zip", "skops_traversal", "skops_declared_huge",
    ),
    3,
)  # fmt: skip
"""Exit statuses other than 6, untrusted."""


@pytest.mark.parametrize("make", files.QUICK, ids=lambda make: make.__name__)
def test_a_hostile_file_is_refused_with_what_it_names(refused, make):
    ended = refused(make)
    assert ended.status == STATUSES.get(make.__name__, 6), ended.said
    for words in NAMES[make.__name__]:
        assert words in ended.said, (words, ended.said)


@pytest.mark.parametrize("make", files.IN_CHILD, ids=lambda make: make.__name__)
def test_a_hostile_skops_file_is_refused(refused, make):
    ended = refused(make, name="model.skops")
    assert ended.status in (3, 6), ended.said


SCAN_ALL = """
import pathlib, sys
from repobuild.sources.archive_scan import scan_archive
from repobuild.sources.containers import open_stream
from repobuild.sources.content import content_of
from repobuild.sources.pickle_scan import scan_pickle

def peak():
    # in KiB; ru_maxrss would count what the parent held before exec
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])

before = peak()
for path in map(pathlib.Path, sys.argv[1:]):
    content_of(path)
    scan_archive(path)
    with path.open("rb") as stream:
        scan_pickle(open_stream(stream))
print(peak() - before)
"""


def test_reading_hostile_files_takes_little_memory(tmp_path):
    for make in files.QUICK:
        (tmp_path / make.__name__).write_bytes(make(tmp_path / "canary"))
    words = [sys.executable, "-c", SCAN_ALL, *(tmp_path / make.__name__ for make in files.QUICK)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) << 10 < PEAK
    assert not (tmp_path / "canary").exists()


def test_the_types_that_a_skops_file_would_import_are_named(refused):
    assert "posix.system" in refused(files.skops_reduce).said


@pytest.mark.parametrize("name", sorted(RUNS_A_COMMAND))
def test_the_hostile_files_are_what_they_say(tmp_path, name):
    """Loaded without looking, they do run: otherwise the other tests would prove nothing."""
    canary = tmp_path / "canary"
    (tmp_path / "m").write_bytes(getattr(files, name)(canary))
    code = "import joblib, sys; joblib.load(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, tmp_path / "m"], capture_output=True, timeout=120)
    assert canary.exists()


@pytest.mark.parametrize("kind", ["joblib", "pickle", "cloudpickle", "sklearn", "auto"])
def test_no_kind_in_the_recipe_makes_a_pickle_trusted(refused, kind):
    ended = refused(files.trap, kind=kind)
    assert ended.status == 6
    assert "CALL posix.system" in ended.said


@pytest.mark.parametrize("kind", ["skops", "torch", "onnx", "pt2", "torchscript", "xgboost"])
def test_a_pickle_that_the_recipe_calls_something_else_is_not_loaded(refused, kind):
    assert refused(files.trap, kind=kind).status == 3


@pytest.mark.parametrize("kind", ["module", "torchscript"])
@pytest.mark.parametrize("make", [files.trap, files.torch_zip, files.skops_object], ids=lambda m: m.__name__)
def test_another_kind_of_trust_does_not_open_pickles(refused, kind, make):
    assert refused(make, "--trust", kind).status == 6


@pytest.mark.parametrize("name", ["model.pt", "model.pkl", "model.skops", "model.onnx", "model"])
@pytest.mark.parametrize("make", [files.trap, files.torch_zip], ids=lambda make: make.__name__)
def test_the_name_of_a_file_decides_nothing(refused, name, make):
    ended = refused(make, name=name)
    assert ended.status == 6
    assert "CALL posix.system" in ended.said


def test_a_hostile_archive_is_a_valid_archive(tmp_path):
    (tmp_path / "a").write_bytes(files.torch_zip(tmp_path / "canary"))
    with zipfile.ZipFile(tmp_path / "a") as archive:
        assert archive.testzip() is None
    assert pickle.loads(b"N.") is None
