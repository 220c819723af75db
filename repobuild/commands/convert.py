"""``repobuild convert``: the main job."""

from __future__ import annotations

import json
from pathlib import Path

import click

from repobuild.errors import from_oserror

TRUST_KINDS = ("pickle", "module", "torchscript")


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option(
    "-r",
    "--repository",
    type=click.Path(path_type=Path),
    required=True,
    help="Triton model repository to build into; made if it does not exist.",
)
@click.option(
    "--trust",
    multiple=True,
    type=click.Choice(TRUST_KINDS),
    help="Vouch for a kind of file that runs code when it is loaded. May be repeated.",
)
@click.option(
    "--report",
    "report_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report as JSON here, also when the build is refused.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print the result only.")
def convert(
    recipe: Path, repository: Path, trust: tuple[str, ...], report_file: Path | None, quiet: bool
) -> None:
    """Convert the model that RECIPE names into a Triton model repository.

    RECIPE is a recipe file, or a folder that holds a recipe.yaml. The model is exported to ONNX, compared
    with the original on the recipe's samples, written as a model version with config.pbtxt and warm-up
    samples, and proven on the bundled server. The repository changes last, in one step.
    """
    from repobuild.build import Order, Refused
    from repobuild.console import PlainLines, closing_table
    from repobuild.pipeline import convert as build
    from repobuild.recipe.load import load_recipe
    from repobuild.sources.interface import Trust

    order = Order(load_recipe(recipe), repository, Trust(frozenset(trust)))
    try:
        report = build(order, PlainLines(quiet=quiet))
    except Refused as refused:
        _write(
            report_file, {**refused.report.to_dict(), "outcome": "refused", "error": refused.error.to_dict()}
        )
        raise refused.error from refused
    _write(report_file, report.to_dict())
    click.echo(closing_table(report, str(repository)))


def _write(file: Path | None, document: dict[str, object]) -> None:
    if file is None:
        return
    try:
        file.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as problem:
        raise from_oserror(problem, f"writing {file}") from problem
