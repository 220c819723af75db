"""Each request of the corpus, to both servers."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

import pytest
from oracle.answers import aspects
from oracle.corpus.all import all_cases
from oracle.corpus.case import get, infer, tensor
from oracle.differences import CRASHING, DIFFERENCES, expected
from oracle.servers import Server

CASES = all_cases()
Start = Callable[[str, str], Server]


@pytest.mark.parametrize("name", [name for name in CASES if name not in CRASHING])
def test_both_servers_answer_alike(compatible: None, start: Start, name: str) -> None:
    real, ours = start("real", "main"), start("ours", "main")
    request = CASES[name].request
    wanted = aspects(real.ask(request), real.repository)
    found = aspects(ours.ask(request), ours.repository)
    assert set(wanted.differing(found)) == expected(name), f"real {wanted}\nours {found}"


@pytest.mark.parametrize("name", sorted(CRASHING))
def test_what_ends_the_real_server_is_an_error_here(compatible: None, start: Start, name: str) -> None:
    ours = start("ours", "main")
    assert ours.ask(CASES[name].request).status == CRASHING[name]
    assert ours.ask(get("/v2/health/live")).status == 200


def test_the_real_server_carries_data(real_server: None, start: Start) -> None:
    """With an unfit NumPy its Python stub answers, but with empty outputs and wrong inputs."""
    answer = start("real", "main").ask(infer("id_fp32", [tensor([1.5, -2.0])]))
    assert b'"data":[1.5,-2.0]' in answer.body


def test_every_difference_names_a_case() -> None:
    patterns = [pattern for entry in DIFFERENCES for pattern in entry.cases]
    assert [p for p in patterns if not any(fnmatchcase(name, p) for name in CASES)] == []
    assert CRASHING.keys() <= CASES.keys()
