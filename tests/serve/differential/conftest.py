"""Both servers, on the same repositories, once per process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

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
    """Both servers can be had."""


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Server]]:
    """The ``real`` server of a stage or ``ours``, started on demand, with a repository of its own."""
    with contextlib.ExitStack() as stack:
        running: dict[tuple[str, str], Server] = {}

        def get(kind: str, name: str) -> Server:
            # The real server does not survive everything; the next case gets a fresh one.
            if (kind, name) not in running or (
                kind == "real" and running[kind, name].process.poll() is not None
            ):
                repository = tmp_path_factory.mktemp(f"{kind}-{name}") / "repository"
                repository.mkdir()
                stage = stages()[name]
                for model in stage.models:
                    model.write(repository)
                running[kind, name] = stack.enter_context(servers.serve(kind, repository, *stage.options))
            return running[kind, name]

        yield get
