"""The zoo as a whole: all architectures converted by the command line, and what came of it on one server."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repobuild.verify.server import BundledServer
from tests.zoo.architecture import Architecture
from tests.zoo.project import write_project

AT_ONCE = 2
CONVERT_SECONDS = 300


@dataclass(frozen=True)
class Conversion:
    """What became of one architecture.

    Attributes:
        status: Exit status of the command.
        document: What it printed as JSON.
        told: What it printed for people.
        seconds: How long it took.
        repository: The repository that it was told to build into.
    """

    status: int
    document: dict[str, Any]
    told: str
    seconds: float
    repository: Path


@dataclass(frozen=True)
class Zoo:
    """All conversions by name, and where the models are served as ``host:port``."""

    conversions: dict[str, Conversion]
    address: str


def convert(recipe: Path) -> Conversion:
    """Hand a recipe to ``repobuild convert``, whose repository lies beside the recipe's folder."""
    folder = recipe.parent.parent
    repository = folder / "repository"
    words = ("convert", recipe, "--repository", repository, "--trust", "module", "--json")
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "repobuild", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=CONVERT_SECONDS,
        cwd=folder,
    )
    seconds = time.monotonic() - begin
    return Conversion(done.returncode, json.loads(done.stdout), done.stderr, seconds, repository)


@contextlib.contextmanager
def served(architectures: Sequence[Architecture], folder: Path) -> Iterator[Zoo]:
    """Convert all of them, two at a time, and serve those that were built until the block ends."""
    recipes = [write_project(a, folder / a.name / "project") for a in architectures]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(convert, recipes))
    conversions = dict(zip((a.name for a in architectures), found, strict=True))
    together = folder / "together"
    together.mkdir()
    for name, conversion in conversions.items():
        if conversion.status == 0:
            shutil.copytree(conversion.repository / name, together / name)
    with BundledServer(together, folder) as server:
        yield Zoo(conversions, server.address)
