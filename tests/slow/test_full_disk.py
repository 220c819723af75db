"""Builds on a disk that is full after every single page: what they say and what they leave."""

import subprocess
import sys

import joblib
import numpy as np
import pytest
from sklearn.linear_model import Ridge

PAGE = 4096
MOST_PAGES = 200
ROWS = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
OLD, NEW = Ridge().fit(ROWS, ROWS.sum(1)), Ridge().fit(ROWS, -5 * ROWS.sum(1))

SCRIPT = """
size=$1 disk=$2 before=$3 after=$4; shift 4
mount -t tmpfs -o "size=$size" small "$disk"
cp -a "$before"/. "$disk"
status=0
"$@" || status=$?
cp -a "$disk"/. "$after"
exit $status
"""
"""The disk is mounted in a namespace of its own and ends with the build; what it held is copied out."""


def everything(folder):
    """All that lies below a folder, with contents."""
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")
    }


def pages(folder):
    """How many pages of a disk the files below a folder take."""
    return sum(-(-p.stat().st_size // PAGE) for p in folder.rglob("*") if p.is_file())


def versions(state):
    """The versions among what a folder holds."""
    return {name.split("/")[2] for name in state if name.startswith("repository/model/") and "onnx" in name}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("earlier", [0, 1], ids=["first version", "second version"])
def test_a_disk_that_fills_at_every_page_leaves_the_old_or_the_new(project, tmp_path, monkeypatch, earlier):
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not permitted")
    home = project(OLD, ROWS)
    start, disk, temporary = (tmp_path / name for name in ("start", "disk", "temporary"))
    for folder in (start, disk, temporary):
        folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))

    def command(repository):
        words = ["convert", home, "-r", repository, "--trust", "pickle", "-q"]
        return [sys.executable, "-m", "repobuild", *words]

    if earlier:
        subprocess.run(command(start / "repository"), check=True, capture_output=True, timeout=120)
        joblib.dump(NEW, home / "model.joblib")
    before = everything(start)
    refused = 0
    for free in range(MOST_PAGES):
        after = tmp_path / f"after-{free}"
        after.mkdir()
        size = (pages(start) + max(free, 1 - pages(start))) * PAGE  # size=0 would be a disk without bounds
        shell = ["unshare", "--mount", "sh", "-ec", SCRIPT, "sh", str(size), disk, start, after]
        build = subprocess.run(
            [*shell, *command(disk / "repository")], capture_output=True, text=True, check=False, timeout=120
        )
        left = everything(after)
        assert list(temporary.iterdir()) == [], free
        assert list(disk.iterdir()) == [], "the disk was mounted where the test can see it"
        if build.returncode == 0:
            assert versions(left) == {str(n) for n in range(1, earlier + 2)}
            break
        assert (build.returncode, "error[disk-full]" in build.stderr) == (7, True), (free, build.stderr)
        assert "Traceback" not in build.stderr
        assert left == before, free
        refused += 1
    else:
        pytest.fail("the build never fits")
    assert refused > 5
