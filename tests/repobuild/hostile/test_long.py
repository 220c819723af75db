"""Hostile files that keep a processor busy: they end, within bounded memory."""

import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("hostile_files_long", Path(__file__).with_name("files.py"))
files = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(files)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MIB = 1 << 20
PEAK = 900 * MIB
HEAVY = (files.deep_tuples, files.deep_marks, files.long_integer, files.zips_all_the_way, files.lying_sizes)


@pytest.mark.parametrize("make", [*files.LONG, *HEAVY], ids=lambda make: make.__name__)
def test_a_file_that_costs_its_reader_much_is_refused(refused_apart, make):
    ended = refused_apart(make)
    assert ended.status in (3, 5, 6), ended.said
    assert ended.peak < PEAK
