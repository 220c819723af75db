"""The way from a recipe's path to the bytes of a pickle, and what the scan of them may refuse."""

import gzip
import io
import os
import pickle
import socket

import pytest

from repobuild.errors import InputInvalid, SourceUntrusted
from repobuild.recipe.load import load_recipe
from repobuild.sources.containers import read_head
from repobuild.sources.find import open_source
from repobuild.sources.interface import Trust
from repobuild.sources.opcodes import limits
from repobuild.sources.streams import CountingStream, StreamEnded, StreamTooLarge


def counting(data, limit=1 << 30):
    return CountingStream(io.BytesIO(data), limit)


def test_a_stream_gives_bytes_lines_and_skips_across_its_pieces():
    size = 700_000
    stream = counting(b"a" * size + b"\n" + b"b" * size + b"\nrest")
    assert stream.line(10) is None
    assert stream.tell() == size + 1
    assert stream.line(size) == b"b" * size
    assert stream.byte() == ord("r")
    stream.skip(1)
    assert stream.read(2) == b"st"
    assert stream.tell() == 2 * size + 6
    for ended in (stream.byte, lambda: stream.read(1), lambda: stream.skip(1), lambda: stream.line(1)):
        with pytest.raises(StreamEnded):
            ended()


def test_a_stream_stops_at_its_limit():
    with pytest.raises(StreamTooLarge):
        counting(b"a" * 3_000_000, 1_000_000).skip(2_000_000)
    assert counting(b"a" * 1_000, 1_000).read(1_000) == b"a" * 1_000


def refusal(path):
    with pytest.raises(InputInvalid) as caught:
        read_head(path, "given.joblib")
    assert caught.value.hint
    return caught.value.code, caught.value.render()


def test_a_named_pipe_is_refused_before_it_is_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        code, text = refusal(tmp_path / name)
        assert code == "model-not-file"
        assert "is a named pipe" in text


def test_a_device_is_refused(tmp_path):
    (tmp_path / "model.joblib").symlink_to("/dev/zero")
    code, text = refusal(tmp_path / "model.joblib")
    assert code == "model-not-file"
    assert "is a character device" in text


def test_a_socket_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        code, text = refusal(tmp_path / "s")
    assert code == "model-not-file"
    assert "is a socket" in text


def test_paths_that_lead_nowhere_are_missing_files(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("absent", "nul\0byte", "file/below", "dangling", "\ud800"):
        code, text = refusal(tmp_path / name)
        assert code == "model-missing", name
        assert "no such file" in text
    assert refusal(tmp_path)[0] == "model-is-folder"


@pytest.fixture
def source(tmp_path):
    """Open the source of a recipe whose model file holds the given bytes."""

    def open_it(data):
        (tmp_path / "model.joblib").write_bytes(data)
        (tmp_path / "recipe.yaml").write_text("name: m\nsource: {path: model.joblib}\nsamples: rows.npy\n")
        (tmp_path / "work").mkdir(exist_ok=True)
        return open_source(load_recipe(tmp_path / "recipe.yaml"), tmp_path / "work")

    return open_it


TRUSTED, NOBODY = Trust(frozenset({"pickle"})), Trust(frozenset())
LIMITED = b"cposix\nsystem\n0" + b"N" * 5_000 + b"."


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(LIMITED),
        gzip.compress(b"N" * 5_000 + b"."),
        b"\x80\x04]]\x93.",
        b"\x80\x04\xff",
        gzip.compress(pickle.dumps([1]))[:-8] + bytes(8),
    ],
    ids=["long gzip", "long gzip of nothing", "unlike pickle", "unknown opcode", "wrong checksum"],
)
def test_only_the_child_judges_a_vouched_file_that_the_scan_cannot_follow(source, monkeypatch, data):
    monkeypatch.setattr(limits, "MAX_HELD", 1_000)
    source(data).vouch(TRUSTED)


def test_a_file_cut_off_is_refused_though_it_is_vouched_for(source):
    with pytest.raises(InputInvalid) as caught:
        source(pickle.dumps(list(range(100)))[:-5]).vouch(TRUSTED)
    assert caught.value.code == "model-truncated"


def test_a_scan_that_met_a_limit_lists_what_it_found(source, monkeypatch):
    monkeypatch.setattr(limits, "MAX_HELD", 1_000)
    with pytest.raises(SourceUntrusted) as caught:
        source(gzip.compress(LIMITED)).vouch(NOBODY)
    text = caught.value.render()
    assert caught.value.code == "source-untrusted"
    assert "would import posix.system" in text
    assert "could not follow the file to its end: it has more than 1000 objects" in text


def test_what_an_untrusted_file_names_fits_a_screen(source):
    names = b"".join(b"cm\n%s%d\n(tR0" % (b"n" * 1_000, i) for i in range(500))
    with pytest.raises(SourceUntrusted) as caught:
        source(b"\x80\x02" + names + b"N.").vouch(NOBODY)
    text = caught.value.render()
    assert "CALL 476 more" in text
    assert "import 476 more" in text
    assert len(text) < 20_000
