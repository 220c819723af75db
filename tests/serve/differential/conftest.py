"""Both servers, on the same repositories, once per process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from oracle import servers
from oracle.servers import Server
from oracle.stages import stages


@pytest.fixture(scope="session")
def real_server() -> None:
    """Skip where the real server cannot be had."""
    reason = servers.unavailable()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def compatible(real_server: None) -> None:
    """Skip while the bundled server cannot answer as Triton 24.10 does."""
    command = [sys.executable, "-m", "repobuild_serve", "--help"]
    if "--compat" not in subprocess.run(command, capture_output=True, text=True, check=True).stdout:
        pytest.skip("the bundled server has no --compat yet")


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Server]]:
    """The ``real`` server of a stage or ``ours``, started on demand, with a repository of its own."""
    with contextlib.ExitStack() as stack:
        running: dict[tuple[str, str], Server] = {}

        def get(kind: str, name: str) -> Server:
            if (kind, name) not in running:
                repository = Path(tmp_path_factory.mktemp(f"{kind}-{name}")) / "repository"
                repository.mkdir()
                stage = stages()[name]
                for model in stage.models:
                    model.write(repository)
                running[kind, name] = stack.enter_context(servers.serve(kind, repository, *stage.options))
            return running[kind, name]

        yield get
