"""The zoo itself: a wrong answer would be seen, and the page in the docs lists what there is."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.zoo.asking import compare, with_rows
from tests.zoo.catalog import CATALOG
from tests.zoo.modules import answer, build

PAGE = Path(__file__).parent.parent.parent / "docs" / "zoo.md"
ROWS = 16

# torch.nn.TransformerEncoder itself uses them where padding is masked.
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")


def test_names_are_unique():
    names = [a.name for a in CATALOG]
    assert len(names) == len(set(names))


def test_the_page_lists_the_catalog():
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [a.name for a in CATALOG]


@pytest.mark.parametrize("architecture", CATALOG, ids=lambda a: a.name)
def test_settings_leave_the_samples_sizes_behind(architecture):
    settings = architecture.settings()
    for label, sizes in architecture.sizes.items():
        tried = {setting[label] for setting in settings}
        assert len(tried - {sizes[0]}) >= 2
    if any("batch" in item.axes for item in architecture.inputs.values()):
        assert len({setting["batch"] for setting in settings}) >= 3


def same(architecture, one, other):
    """Whether two answers would pass for each other."""
    try:
        for name, values in one.items():
            compare(architecture, name, with_rows(architecture, other[name]), values)
    except AssertionError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("architecture", CATALOG, ids=lambda a: a.name)
def test_rows_differ_and_every_input_counts(architecture):
    net = build(architecture)
    sizes = {"batch": ROWS, **{label: values[0] for label, values in architecture.sizes.items()}}
    feed, other = architecture.draw(1, sizes), architecture.draw(2, sizes)
    answers = answer(net, architecture, feed)
    assert same(architecture, answers, answer(build(architecture), architecture, feed))
    for name in feed:
        assert not same(architecture, answers, answer(net, architecture, {**feed, name: other[name]})), name
    if architecture.batched:
        for name, values in answers.items():
            rows = values.reshape(ROWS, -1).astype("float64")
            assert np.ptp(rows, axis=0).max() > 0.02 * np.abs(rows).max(), name
