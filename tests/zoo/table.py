"""Writes docs/zoo.md: ``python -m tests.zoo.table``, some minutes."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from tests.zoo.architecture import Architecture
from tests.zoo.asking import deviation
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
Seconds are those of the whole command, two of which run at a time on two cores; what else a machine does
makes them two and three times as many.
`python -m tests.zoo.table` writes this page.

| name | parameters | inputs | outputs | free axes | `max_batch_size` | absolute | relative | seconds | |
| --- | ---: | --- | --- | --- | ---: | ---: | ---: | ---: | --- |
"""


def row(architecture: Architecture, conversion: Conversion, client: Any) -> str:
    """One line of the table.

    Raises:
        AssertionError: The architecture was not converted, or answers wrongly.
    """
    assert (conversion.status != 0) == bool(architecture.refusal), conversion.told
    names = [", ".join(f"`{name}`" for name in some) for some in (architecture.inputs, architecture.outputs)]
    parameters = sum(p.numel() for p in build(architecture).parameters())
    measured = ["refused", "", ""]
    if not architecture.refusal:
        largest = client.get_model_config(architecture.name)["max_batch_size"]
        off = deviation(client, architecture)
        measured = [str(largest), f"{off.absolute:.1e}", f"{off.relative:.1e}"]
    free = ", ".join(architecture.sizes)
    cells = [
        f"`{architecture.name}`",
        f"{parameters:,}",
        *names,
        free,
        *measured,
        f"{conversion.seconds:.0f}",
    ]
    return f"| {' | '.join([*cells, _remarks(architecture)])} |\n"


def _remarks(architecture: Architecture) -> str:
    within = "" if architecture.atol == USUAL else f"within {architecture.atol:g}"
    refusal = f"`{architecture.refusal}`" if architecture.refusal else ""
    return "; ".join(filter(None, (refusal, architecture.notes, within)))


def page(zoo: Zoo) -> str:
    """The page.

    Raises:
        AssertionError: Architectures were not converted, or answer wrongly.
    """
    from tritonclient.http import InferenceServerClient

    text = HEAD.format(count=len(CATALOG))
    wrong = []
    with InferenceServerClient(zoo.address, connection_timeout=60, network_timeout=60) as client:
        for architecture in CATALOG:
            try:
                text += row(architecture, zoo.conversions[architecture.name], client)
            except AssertionError as problem:
                wrong.append(f"{architecture.name}: {problem}")
    assert not wrong, "\n".join(wrong)
    return text


def main() -> None:
    """Convert, serve, ask, write."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder, served(CATALOG, Path(folder)) as zoo:
        text = page(zoo)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
