"""``python -m tests.soak --minutes 10``: load with all that goes wrong; status 1 if a rule was broken."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.models import MODELS
from tests.soak.run import ACTORS, Options, Result, run


def main() -> int:
    """Run, print what happened, and write it to a file."""
    names = [model.name for model in MODELS]
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="length of the load")
    parser.add_argument(
        "--warm-up", type=float, default=None, help="seconds; default a tenth of it, at least 10"
    )
    parser.add_argument("--looks", type=int, default=None, help="pauses to look; default one a minute")
    parser.add_argument("--mode", choices=["explicit", "poll", "none"], default="explicit")
    parser.add_argument("--seed", type=int, default=None, help="default: the clock; it is printed")
    parser.add_argument("--only", default=",".join(ACTORS), help=f"actors, of {','.join(ACTORS)}")
    parser.add_argument("--models", default=",".join(names), help=f"models, of {','.join(names)}")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--pace", type=float, default=1, help="factor on the pauses between changes")
    parser.add_argument("--option", action="append", default=[], help="a further word for the server")
    parser.add_argument("--report", type=Path, default=Path("build/soak.json"))
    parser.add_argument("--keep", action="store_true", help="keep the folder with log and repository")
    given = parser.parse_args()
    seconds = given.minutes * 60
    options = Options(
        seconds=seconds,
        warm_up=given.warm_up if given.warm_up is not None else max(10, seconds / 10),
        looks=given.looks if given.looks is not None else max(0, round(given.minutes) - 1),
        mode=given.mode,
        seed=given.seed if given.seed is not None else int(time.time()),
        actors=tuple(given.only.split(",")),
        models=tuple(given.models.split(",")),
        clients=given.clients,
        pace=given.pace,
        extra=tuple(given.option),
    )
    if unknown := {*options.actors} - {*ACTORS} | {*options.models} - {*names}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    print(
        f"seed {options.seed}, mode {options.mode}, {seconds:g} s after {options.warm_up:g} s of warm-up",
        flush=True,
    )
    folder = Path(tempfile.mkdtemp(prefix="repobuild-soak-"))
    broken = True
    try:
        result = asyncio.run(run(options, folder))
        broken = result.soak.ledger.broken > 0
        given.report.parent.mkdir(parents=True, exist_ok=True)
        given.report.write_text(json.dumps(result.document(), indent=1) + "\n")
        _print(result)
    finally:
        if given.keep or broken:
            print(f"log and repository: {folder}")
        else:
            shutil.rmtree(folder)
    return int(broken)


def _print(result: Result) -> None:
    document = result.document()
    print(f"\n{'model':10} {'sent':>8} {'right':>8} {'abandoned':>9} {'slowest':>8}  refused")
    for name, row in document["models"].items():
        refused = ", ".join(f"{count} {why}" for why, count in row["refused"].items()) or "-"
        numbers = f"{row['sent']:8} {row['right']:8} {row['abandoned']:9} {row['slowest_seconds']:6.2f} s"
        print(f"{name:10} {numbers}  {refused}")
    print("\n" + ", ".join(f"{count} {what}" for what, count in document["done"].items()))
    print("\nheld while the load paused:")
    columns = [key for key in (document["holdings"] or [{}])[0] if key != "at_seconds"]
    print("      at s " + " ".join(f"{name:>16}" for name in columns))
    for row in document["holdings"]:
        print(f"{row['at_seconds']:10} " + " ".join(f"{row[name]:>16}" for name in columns))
    print(f"\n{document['violations']} violations in {document['seconds']:g} s, seed {document['seed']}")
    for text in document["violations_told"]:
        print(f"  {text}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
