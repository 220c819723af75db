"""Writes down what the real server does in the scripts: ``python -m oracle.observe_scripts FOLDER [PART OF A NAME]``."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from oracle.answers import Aspects
from oracle.observe import kept
from oracle.scripts import Script, play
from oracle.servers import serve
from oracle.stages import all_scripts, stages


def main(target: Path, part: str = "") -> None:
    """Run those whose names have the part in them, and write ``observed-scripts.txt``."""
    with (target / "observed-scripts.txt").open("w" if not part else "a") as table:
        for name, stage in stages().items():
            scripts = [s for s in all_scripts().values() if s.stage == name and part in s.name]
            if not scripts:
                continue
            with tempfile.TemporaryDirectory() as folder:
                repository = Path(folder) / "repository"
                repository.mkdir()
                for model in stage.models:
                    model.write(repository)
                with serve("real", repository, *stage.options) as server:
                    for script in scripts:
                        table.write(told(script, play(script, server)))
                        table.flush()
                    log = server.log.read_text(errors="replace")
                (target / f"observed-{name}.log").write_text(log)


def told(script: Script, found: list[Any]) -> str:
    """A script and what it saw, a line per answer."""
    steps = [step for step in script.steps if type(step).__name__ in {"Ask", "Steady", "Burst"}]
    lines = [f"== {script.name}"]
    for step, seen in zip(steps, found, strict=True):
        request = getattr(step, "request", None)
        asked = (
            type(step).__name__
            if request is None
            else f"{request.method} {request.path} {request.body!r}"[:300]
        )
        lines.append(f"{asked}\n   -> {json.dumps(plain(seen))[:2500]}")
    return "\n".join(lines) + "\n\n"


def plain(seen: Any) -> Any:
    """As JSON."""
    if isinstance(seen, list):
        return [plain(entry) for entry in seen]
    return kept(seen) if isinstance(seen, Aspects) else seen


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
