"""Writes docs/zoo.md: ``python -m tests.zoo.table``, some minutes."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.zoo.architecture import Architecture
from tests.zoo.asking import Deviation, deviation
from tests.zoo.catalog import CATALOG
from tests.zoo.modules import build
from tests.zoo.whole import Conversion, Zoo, served

PAGE = Path(__file__).parent.parent.parent / "docs" / "zoo.md"
USUAL = 1e-5
HEAD = """# The zoo

{count} architectures, written with PyTorch or built from configurations of transformers, with random
weights from seeds. `repobuild convert` converts each of them from weights, Python file and three sample rows;
the bundled server serves it; and it is asked at three batch sizes and two sizes of every free axis, none of
which the samples have. Every answer has to be the module's own, within 1e-5 absolute (or as the table says)
plus 1e-4 of the value; whole numbers and flags have to be equal. `make test-slow` does so, and `tests/zoo/`
holds the modules.

Deviations are the largest of all answers, the relative one in parts of the largest value of its answer.
Seconds are those of the whole command, two of which run at a time on two cores, and vary.
`python -m tests.zoo.table` writes this page.

| name | parameters | inputs | outputs | free axes | `max_batch_size` | absolute | relative | seconds | |
| --- | ---: | --- | --- | --- | ---: | ---: | ---: | ---: | --- |
"""


def row(architecture: Architecture, conversion: Conversion, found: tuple[int, Deviation] | None) -> str:
    """One line of the table, from the largest batch and the deviation; without them that of a refusal."""
    parameters = sum(p.numel() for p in build(architecture).parameters())
    free = ", ".join(f"{label}" for label in architecture.sizes)
    inputs = ", ".join(f"`{name}`" for name in architecture.inputs)
    outputs = ", ".join(f"`{name}`" for name in architecture.outputs)
    if found is None:
        outcome = [
            "refused",
            "",
            "",
            f"{conversion.seconds:.0f}",
            f"`{architecture.refusal}`: {architecture.notes}",
        ]
    else:
        largest, off = found
        measured = [f"{off.absolute:.1e}", f"{off.relative:.1e}"]
        outcome = [str(largest), *measured, f"{conversion.seconds:.0f}", _remarks(architecture)]
    cells = [f"`{architecture.name}`", f"{parameters:,}", inputs, outputs, free, *outcome]
    return f"| {' | '.join(cells)} |\n"


def _remarks(architecture: Architecture) -> str:
    within = "" if architecture.atol == USUAL else f"within {architecture.atol:g}"
    return "; ".join(filter(None, (architecture.notes, within)))


def page(zoo: Zoo) -> str:
    """The page.

    Raises:
        AssertionError: An architecture was not converted, or answers wrongly.
    """
    from tritonclient.http import InferenceServerClient

    text = HEAD.format(count=len(CATALOG))
    with InferenceServerClient(zoo.address, connection_timeout=60, network_timeout=60) as client:
        for architecture in CATALOG:
            conversion = zoo.conversions[architecture.name]
            assert (conversion.status != 0) == bool(architecture.refusal), conversion.told
            found = None
            if not architecture.refusal:
                config = client.get_model_config(architecture.name)
                found = config["max_batch_size"], deviation(client, architecture)
            text += row(architecture, conversion, found)
    return text


def main() -> None:
    """Convert, serve, ask, write."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder, served(CATALOG, Path(folder)) as zoo:
        text = page(zoo)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
