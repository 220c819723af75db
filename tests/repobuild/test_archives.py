"""Archives that nobody vouched for: whatever their bytes, they are looked into without failing."""

import importlib.util
import io
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repobuild.sources import archive_scan, zips
from repobuild.sources.archive_scan import beyond_tensors, scan_archive
from repobuild.sources.content import KINDS, content_of
from repobuild.sources.zips import Zip, ZipUnreadable

_spec = importlib.util.spec_from_file_location(
    "hostile_archives", Path(__file__).parent / "hostile" / "files.py"
)
files = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(files)
NOWHERE = Path("/nowhere/canary")
ARCHIVES = (
    files.torch_zip, files.npz_with_objects, files.zip_in_zip, files.torch_old, files.npy_with_objects,
    files.traversal, files.skops_object,
)  # fmt: skip
MADE = {make.__name__: make(NOWHERE) for make in ARCHIVES}


def looked_at(folder, data):
    """What is found in a file of these bytes."""
    (folder / "m").write_bytes(data)
    assert content_of(folder / "m").kind in KINDS
    return scan_archive(folder / "m")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("archives")


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_no_changed_bytes_make_the_scan_fail(folder, data):
    changed = bytearray(MADE[data.draw(st.sampled_from(sorted(MADE)))])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(
            st.one_of(
                st.integers(0, len(changed) - 1), st.integers(max(0, len(changed) - 200), len(changed) - 1)
            )
        )
        changed[at] = data.draw(st.integers(0, 255))
    looked_at(folder, bytes(changed))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_cut_makes_the_scan_fail(folder, data):
    whole = MADE[data.draw(st.sampled_from(sorted(MADE)))]
    looked_at(folder, whole[: data.draw(st.integers(1, len(whole)))])


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=300))
def test_no_bytes_make_the_scan_fail(folder, data):
    for start in (b"", b"PK\x03\x04", b"PK\x05\x06", b"\x93NUMPY", files.TORCH_MAGIC, b"\x08"):
        looked_at(folder, start + data)


def test_limits_hold_for_all_members_together(folder, monkeypatch):
    monkeypatch.setattr(archive_scan, "MAX_MEMBERS", 3)
    members = {f"{i}.pkl": files.trap(NOWHERE) for i in range(5)}
    monkeypatch.setattr(archive_scan._Looker, "__init__", _with_members(archive_scan._Looker.__init__, 3))
    found = looked_at(folder, files.zipped(members))
    assert sorted(found.pickles) == ["0.pkl", "1.pkl", "2.pkl"]
    assert "only 3 members were looked at" in found.troubles


def _with_members(init, count):
    return lambda self: init(self, members=count)


def test_bytes_of_all_members_are_counted_together(folder, monkeypatch):
    monkeypatch.setattr(archive_scan._Looker, "__init__", _with_left(archive_scan._Looker.__init__, 1 << 20))
    body = files.PROTO4 + b"B" + (900_000).to_bytes(4, "little") + bytes(900_000) + b"."
    found = looked_at(folder, files.zipped({"a.pkl": body, "b.pkl": body}))
    assert found.pickles["a.pkl"].complete
    assert not found.pickles["b.pkl"].complete
    assert "larger than" in found.pickles["b.pkl"].trouble


def _with_left(init, left):
    return lambda self: init(self, left=left)


def test_an_archive_of_too_many_members_is_not_listed(monkeypatch):
    monkeypatch.setattr(zips, "MAX_MEMBERS", 4)
    with pytest.raises(ZipUnreadable, match="more than 4 members"):
        Zip(io.BytesIO(files.zipped({str(i): b"" for i in range(5)})))


def test_a_zip64_archive_that_lies_about_its_list_is_refused():
    data = bytearray(files.zipped({"a": b"x"}))
    at = data.rfind(b"PK\x05\x06")
    end64 = (
        b"PK\x06\x06" + (44).to_bytes(8, "little") + bytes(28) + (1 << 40).to_bytes(8, "little") + bytes(8)
    )
    locator = b"PK\x06\x07" + bytes(4) + at.to_bytes(8, "little") + (1).to_bytes(4, "little")
    with pytest.raises(ZipUnreadable, match="list of members takes 1099511627776 bytes"):
        Zip(io.BytesIO(bytes(data[:at]) + end64 + locator + bytes(data[at:])))


def test_an_honest_archive_has_no_troubles():
    with Zip(io.BytesIO(files.zipped({"a/b": b"x", "c": bytes(1000)}))) as archive:
        assert archive.troubles == ()
        assert archive.names() == {"a/b", "c"}
        assert archive.size_of("c") == 1000
        assert archive.size_of("d") is None
        assert archive.open("a/b").read() == b"x"
        assert archive.head("c", 3) == bytes(3)


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "\\x", "a\\..\\x", "C:\\x", "C:x", ".."])
def test_names_that_lead_out_are_troubles(name):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), b"x")
    with Zip(stream) as archive:
        [trouble] = archive.troubles
    assert trouble.endswith("its name leads out of the archive's folder")


def test_what_tensors_need_is_harmless_and_nothing_else():
    harmless = (
        "torch._utils._rebuild_tensor_v2", "torch.FloatStorage", "torch.storage.UntypedStorage",
        "collections.OrderedDict", "torch.bfloat16", "torch.Size", "_codecs.encode", "torch.device",
    )  # fmt: skip
    odd = (
        "torch.load", "torch.hub.load", "torch.serialization.load", "torch._utils.os.system", "posix.system",
        "torch.nn.Linear", "builtins.getattr", "collections.abc", "torch.FloatStorage.from_file",
        "torch._utils._rebuild_x.y",
    )  # fmt: skip
    assert tuple(beyond_tensors((*harmless, *odd))) == odd
