"""ONNX's backend test cases are converted, served, and answered as stored; the page tells how many."""

import re

import pytest

from tests.conformance.cases import collect
from tests.conformance.page import PAGE, render
from tests.conformance.reasons import REASONS, TITLES
from tests.conformance.run import run
from tests.conformance.runtime_bugs import KNOWN


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_case_is_answered_as_stored_or_excepted_for_a_reason(tmp_path):
    cases = collect()
    results = run(cases, tmp_path)
    assert results.wrong == {}
    parts = (results.served, results.excepted, results.runtime)
    assert sum(map(len, parts)) == len(cases)
    assert PAGE.read_text(encoding="utf-8") == render(cases, results)


SOME = (
    "test_Conv1d_groups", "test_cast_FLOAT_to_DOUBLE", "test_constant", "test_dropout_default_ratio",
    "test_dynamicquantizelinear", "test_if", "test_loop11", "test_lstm_defaults", "test_nonzero_example",
    "test_scan9_scalar", "test_strnormalizer_export_monday_casesensintive_upper", "test_training_dropout",
    "test_sequence_insert_at_back", "test_identity_opt", "test_adam", "test_max_int16",
)  # fmt: skip


def test_some_cases_of_each_kind(tmp_path):
    cases = [c for c in collect() if c.name in SOME]
    assert len(cases) == len(SOME)
    results = run(cases, tmp_path)
    assert results.wrong == {}
    assert set(results.served) == set(SOME[:-5])
    assert set(results.excepted) == set(SOME[-5:])


def test_the_page_counts_what_it_lists():
    text = PAGE.read_text(encoding="utf-8")
    served, count = map(int, re.search(r"\*\*(\d+) of (\d+) are served", text).groups())
    rows = {
        why: int(number)
        for number, why in re.findall(r"^\| (\d+) \| ([^|\n]*[a-z][^|\n]*) \|$", text, re.MULTILINE)
    }
    assert served + sum(rows.values()) == count
    assert set(TITLES) < set(rows)
    assert {r.title for r in REASONS} == set(TITLES)
    for title in TITLES:
        [listed] = re.findall(rf"^{re.escape(title[0].upper() + title[1:])}: (.*)$", text, re.MULTILINE)
        assert len(listed.split(", ")) == rows[title]
    assert all(f"`{name}`: {why}" in text for name, why in KNOWN.items())
