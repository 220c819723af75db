"""Each script, on both servers: statistics, batching, queue policies, lifecycle, refused configurations."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from oracle.answers import Aspects
from oracle.scripts import Script, play
from oracle.servers import Server
from oracle.stages import all_scripts

SCRIPTS = all_scripts()
QUICK = ("statistics-", "mistake-")
Start = Callable[[str, str], Server]


def parameters() -> list[Any]:
    return [
        pytest.param(script, id=name, marks=() if name.startswith(QUICK) else pytest.mark.slow)
        for name, script in SCRIPTS.items()
    ]


@pytest.mark.parametrize("script", parameters())
def test_both_servers_do_alike(compatible: None, start: Start, script: Script) -> None:
    both = [start(kind, script.stage) for kind in ("real", "ours")]
    with ThreadPoolExecutor(2) as pool:
        wanted, found = pool.map(lambda server: plain(play(script, server)), both)
    assert found == wanted


def plain(seen: Any) -> Any:
    """For comparing; as text where NaN or the order of keys may matter is not needed here."""
    if isinstance(seen, list):
        return [plain(entry) for entry in seen]
    return seen.__dict__ if isinstance(seen, Aspects) else seen
