"""The page on differences and the list that the tests go by say the same; needs no real server."""

from __future__ import annotations

import re
from pathlib import Path

from oracle.differences import CRASHING, DIFFERENCES

PAGE = Path(__file__).parents[3] / "docs" / "differences.md"


def rows(title: str) -> list[list[str]]:
    """The cells of every table row in a section of the page, without headings and rules."""
    [section] = re.findall(
        rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in cells] for cells in lines]


def codes(cell: str) -> list[str]:
    """The words in backticks of a cell that has nothing else."""
    found = re.findall(r"`([^`]+)`", cell)
    assert cell == " ".join(f"`{word}`" for word in found)
    return found


def test_the_page_lists_what_differs_and_nothing_else() -> None:
    table = [(codes(requests), frozenset(codes(parts))) for requests, parts, _ in rows("Answers that differ")]
    listed = [(name, parts) for names, parts in table for name in names]
    wanted = [(pattern, entry.parts) for entry in DIFFERENCES for pattern in entry.cases]
    assert sorted(listed, key=str) == sorted(wanted, key=str)


def test_every_listed_difference_has_a_reason() -> None:
    for requests, _, reason in rows("Answers that differ"):
        assert len(reason.split()) > 2, requests


def test_the_page_lists_the_requests_that_end_the_real_server() -> None:
    table = rows("Requests that end the real server")
    assert {codes(request)[0]: int(status) for request, status, _ in table} == CRASHING
