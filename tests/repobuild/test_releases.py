"""The table of Triton releases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from repobuild.errors import InputInvalid
from repobuild.releases import RELEASES, as_markdown, newest, release

HERE = Path(__file__).resolve().parents[2]


def test_a_release_tells_what_its_runtime_loads():
    """24.10 holds ONNX Runtime 1.19.2, which was seen to load opset 21, ai.onnx.ml 5 and IR 10."""
    found = release("24.10")
    assert (found.triton, found.onnxruntime) == ("2.51.0", "1.19.2")
    assert (found.opset, found.ml_opset, found.ir) == (21, 5, 10)
    assert (found.python, found.cuda, found.tensorrt) == ("3.10", "12.6.2", None)


def test_an_unknown_release_names_near_ones():
    """A name that the table lacks is refused, and the nearest names are told."""
    with pytest.raises(InputInvalid) as refused:
        release("24.1O")
    assert refused.value.code == "release-unknown"
    assert "24.10" in refused.value.render()


def test_releases_are_in_order_and_the_newest_is_last():
    """Names are yy.mm, ascending, and what a runtime loads never shrinks."""
    rows = list(RELEASES.values())
    assert all(re.fullmatch(r"2\d\.(0[1-9]|1[0-2])", r.name) for r in rows)
    assert [r.name for r in rows] == sorted(r.name for r in rows)
    assert newest() is rows[-1]
    for column in ("opset", "ml_opset", "ir"):
        values = [getattr(r, column) for r in rows]
        assert values == sorted(values), column


def test_the_page_is_written_from_the_table():
    """docs/releases.md is what the table gives."""
    assert (HERE / "docs/releases.md").read_text(encoding="utf-8") == as_markdown()
